"""Answers of other commands about a plan of virtual workers, as they print them with --json."""

from pathlib import Path

from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.io.documents.records import from_entry
from stagecut.planner.io.files.answers.answer_file import check_same_plan, read_answer
from stagecut.planner.io.files.answers.wave_answer_entry import (
    WaveCompareAnswerEntry,
    WaveExplainAnswerEntry,
    WaveResultEntry,
    WaveSolveAnswerEntry,
)
from stagecut.planner.io.files.wave_plan_file import WavePlanFile


def read_wave_solve_answer(path: Path, plan_file: WavePlanFile) -> WaveResult:
    """The answer of the `plan solve --json` that found a plan; a BadInputError where it found another one."""
    entry = read_answer(path, WaveSolveAnswerEntry, plan_file, kind="plan solve --json")
    result = from_entry(WaveResult, entry)
    check_same_plan(path, result.samples_per_s, plan_file.predicted.samples_per_s, unit="samples/s")
    return result


def read_wave_compare_answer(path: Path, plan_file: WavePlanFile) -> tuple[WaveResult, ...]:
    """The results of a `plan compare --json` of the same inputs, without allocations that do not go with them."""
    entry = read_answer(path, WaveCompareAnswerEntry, plan_file, kind="plan compare --json")
    return tuple(from_entry(WaveResult, result) for result in entry.results if isinstance(result, WaveResultEntry))


def read_wave_explain_answer(path: Path, plan_file: WavePlanFile) -> tuple[tuple[str, str, WaveResult | None], ...]:
    """What was changed, the unit and what was found, if anything, from a `plan explain --json` about the same plan."""
    entry = read_answer(path, WaveExplainAnswerEntry, plan_file, kind="plan explain --json")
    check_same_plan(path, float(entry.samples_per_s), plan_file.predicted.samples_per_s, unit="samples/s")
    return tuple(
        (row.what, row.unit, from_entry(WaveResult, row) if isinstance(row, WaveResultEntry) else None)
        for row in entry.what_if
    )
