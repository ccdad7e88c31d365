"""Answers of other commands about a plan, as they print them with --json, and records of its runs."""

from pathlib import Path
from typing import TypeVar

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.tolerances import RECOMPUTED
from stagecut.planner.core.result import HistoryPoint, Result
from stagecut.planner.core.run_record import RunRecord
from stagecut.planner.core.virtual_workers.wave_run_record import WaveRunRecord
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.documents.records import from_entry
from stagecut.planner.io.documents.tree import read_document
from stagecut.planner.io.documents.validate import validate
from stagecut.planner.io.files.answers.answer_entry import (
    AnswerAboutInputs,
    CompareAnswerEntry,
    ExplainAnswerEntry,
    ResultEntry,
    SolveAnswerEntry,
)
from stagecut.planner.io.files.plan_file import PlanFile, input_hashes
from stagecut.planner.io.files.run_entry import RunFile
from stagecut.planner.io.files.run_history import OF_WAVES, AnyRun, read_runs
from stagecut.planner.io.files.wave_plan_file import AnyPlanFile, to_tree
from stagecut.planner.io.files.wave_run_entry import WaveRunFile

A = TypeVar("A", bound=AnswerAboutInputs)
AnyRecord = TypeVar("AnyRecord", RunRecord, WaveRunRecord)


def read_solve_answer(path: Path, plan_file: PlanFile) -> Result:
    """The answer of the `plan solve --json` that found a plan; a BadInputError where it found another one."""
    entry = read_answer(path, SolveAnswerEntry, plan_file, kind="plan solve --json")
    check_same_plan(path, entry.objective_s, plan_file.predicted.iteration_s, unit="s")
    return from_entry(Result, entry, history=tuple(from_entry(HistoryPoint, point) for point in entry.history))


def read_compare_answer(path: Path, plan_file: PlanFile) -> tuple[Result, ...]:
    """The results of a `plan compare --json` of the same inputs, without solvers that cannot express the problem."""
    entry = read_answer(path, CompareAnswerEntry, plan_file, kind="plan compare --json")
    return tuple(from_entry(Result, result) for result in entry.results if isinstance(result, ResultEntry))


def read_explain_answer(path: Path, plan_file: PlanFile) -> tuple[tuple[str, str, Result], ...]:
    """What was changed, the unit and what was found, from a `plan explain --json` about the same plan."""
    entry = read_answer(path, ExplainAnswerEntry, plan_file, kind="plan explain --json")
    check_same_plan(path, entry.iteration_s, plan_file.predicted.iteration_s, unit="s")
    return tuple((row.what, row.unit, from_entry(Result, row)) for row in entry.what_if)


def read_run_of(path: Path, plan_file: AnyPlanFile, kind: type[AnyRecord]) -> AnyRecord:
    """The record of a run of this plan: of a history (`.jsonl`) the last one, of any other file the only one."""
    plan_hash = sha256_of(to_tree(plan_file))
    runs = _runs(path)
    own = [run for run in runs if isinstance(run, kind) and run.plan_hash == plan_hash]
    if not own:
        others = ", ".join(dict.fromkeys(run.plan_hash[:8] for run in runs)) or "none"
        raise BadInputError(
            f"{path}: holds no run of this plan, whose hash begins with {plan_hash[:8]}; got runs of {others}. "
            "`plan run PLAN -o FILE` records one"
        )
    return own[-1]


def read_answer(path: Path, entry_type: type[A], plan_file: AnyPlanFile, *, kind: str) -> A:
    """What another command printed; raises a BadInputError if it is about other inputs than the plan."""
    document = read_document(path)
    stated = document.complaints.checked(validate(document, AnswerAboutInputs, kind=kind)).provenance.input_hashes
    own = input_hashes(plan_file.problem)
    differ = [name for name, digest in own.items() if stated.get(name) != digest]
    if differ:
        raise BadInputError(f"{path}: is about another problem than the plan: another {', another '.join(differ)}")
    return document.complaints.checked(validate(document, entry_type, kind=kind))


def check_same_plan(path: Path, found: float | None, own: float, *, unit: str) -> None:
    """Raise a BadInputError if an answer is about a plan that takes or makes something else."""
    if found is None or abs(found - own) > RECOMPUTED * own:
        got = "no plan" if found is None else f"one of {found!r} {unit}"
        raise BadInputError(f"{path}: is about another plan: {got}, that of the report has {own!r} {unit}")


def _runs(path: Path) -> tuple[AnyRun, ...]:
    if path.suffix == ".jsonl":
        history = read_runs(path)
        return (*history.runs, *history.wave_runs)
    document = read_document(path)
    node = document.root.at("kind")
    if node is not None and node.value == OF_WAVES:
        return (from_entry(WaveRunRecord, document.complaints.checked(validate(document, WaveRunFile, kind="run"))),)
    return (from_entry(RunRecord, document.complaints.checked(validate(document, RunFile, kind="run"))),)
