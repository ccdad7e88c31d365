"""Plans of virtual workers beside each other: by allocation, and with more hardware."""

from collections.abc import Sequence

from rich.table import Table

from stagecut.planner.analysis.wave_what_if import WaveWhatIf
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.report.labels import percent_label, seconds_label, status_label
from stagecut.planner.report.text_table import text_table
from stagecut.planner.report.waves.wave_verdict import rate_label


def wave_comparison_table(results: Sequence[WaveResult]) -> Table:
    """One row per allocation, in the order given."""
    best = max((result.samples_per_s or 0.0 for result in results), default=0.0)
    rows = (
        (
            result.solver,
            status_label(result),
            rate_label(result.samples_per_s),
            rate_label(result.bound_samples_per_s),
            percent_label(result.gap),
            seconds_label(result.seconds),
            percent_label(share_of_best(result, best)),
        )
        for result in results
    )
    return text_table(rows, "solver", "status", right=("makes", "bound", "gap", "search time", "of the best"))


def share_of_best(result: WaveResult, best: float) -> float | None:
    """Of the best samples per second; None without a plan."""
    if result.samples_per_s is None:
        return None
    return 1.0 if result.samples_per_s == best else result.samples_per_s / best


def wave_what_if_table(rows: Sequence[WaveWhatIf]) -> Table:
    """One row for each unit, in the order given."""
    return text_table(map(_cells, rows), "with", right=("makes", "bound", "search time", "gains", "at most"))


def _cells(row: WaveWhatIf) -> tuple[str, ...]:
    result = row.result
    made, bound = (None, None) if result is None else (result.samples_per_s, result.bound_samples_per_s)
    seconds = seconds_label(None if result is None else result.seconds)
    gains = map(percent_label, (row.gained, row.gained_at_most))
    return row.what, rate_label(made), rate_label(bound), seconds, *gains
