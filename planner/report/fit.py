"""Whether a plan fits in memory, in words."""

from collections.abc import Sequence

from rich.table import Table

from stagecut.planner.analysis.layout_changes import LayoutChange
from stagecut.planner.analysis.prediction import Played
from stagecut.planner.report.labels import bytes_label, device_label, seconds_label
from stagecut.planner.report.text_table import text_table
from stagecut.planner.report.verdict import time_ratio


def fit_sentence(played: Played, short: Sequence[int]) -> str:
    """How much memory the fullest device has to spare, or how much the stages in `short` lack."""
    costs = played.costs
    used, limits = costs.memory_bytes.tolist(), costs.limit_bytes.tolist()
    spare = [limit - need for need, limit in zip(used, limits, strict=True)]
    stage = min(range(len(spare)), key=lambda index: spare[index])
    where = f"stage {stage} on {device_label(played.plan.stages[stage].devices)}"
    if not short:
        return f"fits in memory: {bytes_label(spare[stage])} to spare in {where}"
    others = len(short) - 1
    also = f" ({others} other {'stage lacks' if others == 1 else 'stages lack'} memory too)" if others else ""
    needs = f"needs {bytes_label(used[stage])} and has {bytes_label(limits[stage])}"
    return f"does not fit in memory: {where} {needs}, {bytes_label(-spare[stage])} short{also}"


def change_table(changes: Sequence[LayoutChange], iteration_s: float) -> Table:
    """Single changes with which a layout of that iteration time fits."""
    rows = (
        (each.options, seconds_label(each.iteration_s), f"{time_ratio(each.iteration_s, iteration_s):.3f}x")
        for each in changes
    )
    return text_table(rows, "it would fit with", right=("iteration time", "as long"))
