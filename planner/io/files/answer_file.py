"""Answers of other commands about a plan, as they print them with --json, and records of its runs."""

from pathlib import Path

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.tolerances import RECOMPUTED
from stagecut.planner.core.result import HistoryPoint, Result
from stagecut.planner.core.run_record import RunRecord
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.documents.records import from_entry
from stagecut.planner.io.documents.tree import read_document
from stagecut.planner.io.documents.validate import E, validate
from stagecut.planner.io.files.answer_entry import (
    CompareAnswerEntry,
    ExplainAnswerEntry,
    ProvenanceEntry,
    ResultEntry,
    SolveAnswerEntry,
)
from stagecut.planner.io.files.plan_file import PlanFile, input_hashes, to_tree
from stagecut.planner.io.files.run_entry import RunFile
from stagecut.planner.io.files.run_history import read_runs


def read_solve_answer(path: Path, plan_file: PlanFile) -> Result:
    """The answer of the `plan solve --json` that found a plan; a BadInputError where it found another one."""
    entry = _read(path, SolveAnswerEntry, kind="plan solve --json")
    _check_inputs(path, entry.provenance, plan_file)
    _check_time(path, entry.objective_s, plan_file)
    return from_entry(Result, entry, history=tuple(from_entry(HistoryPoint, point) for point in entry.history))


def read_compare_answer(path: Path, plan_file: PlanFile) -> tuple[Result, ...]:
    """The results of a `plan compare --json` of the same inputs, without solvers that cannot express the problem."""
    entry = _read(path, CompareAnswerEntry, kind="plan compare --json")
    _check_inputs(path, entry.provenance, plan_file)
    return tuple(from_entry(Result, result) for result in entry.results if isinstance(result, ResultEntry))


def read_explain_answer(path: Path, plan_file: PlanFile) -> tuple[tuple[str, str, Result], ...]:
    """What was changed, the unit and what was found, from a `plan explain --json` about the same plan."""
    entry = _read(path, ExplainAnswerEntry, kind="plan explain --json")
    _check_inputs(path, entry.provenance, plan_file)
    _check_time(path, entry.iteration_s, plan_file)
    return tuple((row.what, row.unit, from_entry(Result, row)) for row in entry.what_if)


def read_run_of(path: Path, plan_file: PlanFile) -> RunRecord:
    """The record of a run of this plan: of a history (`.jsonl`) the last one, of any other file the only one."""
    plan_hash = sha256_of(to_tree(plan_file))
    runs = read_runs(path).runs if path.suffix == ".jsonl" else (_read_run(path),)
    own = [run for run in runs if run.plan_hash == plan_hash]
    if not own:
        others = ", ".join(dict.fromkeys(run.plan_hash[:8] for run in runs)) or "none"
        raise BadInputError(
            f"{path}: holds no run of this plan, whose hash begins with {plan_hash[:8]}; got runs of {others}. "
            "`plan run PLAN -o FILE` records one"
        )
    return own[-1]


def _read_run(path: Path) -> RunRecord:
    return from_entry(RunRecord, _read(path, RunFile, kind="run"))


def _read(path: Path, entry_type: type[E], *, kind: str) -> E:
    document = read_document(path)
    return document.complaints.checked(validate(document, entry_type, kind=kind))


def _check_inputs(path: Path, provenance: ProvenanceEntry, plan_file: PlanFile) -> None:
    own = input_hashes(plan_file.problem)
    differ = [name for name, digest in own.items() if provenance.input_hashes.get(name) != digest]
    if differ:
        raise BadInputError(f"{path}: is about another problem than the plan: another {', another '.join(differ)}")


def _check_time(path: Path, seconds: float | None, plan_file: PlanFile) -> None:
    own_s = plan_file.predicted.iteration_s
    if seconds is None or abs(seconds - own_s) > RECOMPUTED * own_s:
        got = "no plan" if seconds is None else f"one of {seconds!r} s"
        raise BadInputError(f"{path}: is about another plan: {got}, the plan of the report takes {own_s!r} s")
