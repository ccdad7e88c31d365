"""What limits a plan, and what more hardware would bring, as tables and trees."""

import math
from collections.abc import Sequence

from rich.table import Table

from stagecut.planner.analysis.what_if import WhatIfOutcome
from stagecut.planner.core.numerics.tolerances import NOTICEABLE
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.units import format_seconds
from stagecut.planner.report.labels import bytes_label, device_label, percent_label, seconds_label
from stagecut.planner.report.summary import comparison_row
from stagecut.planner.report.text_table import text_table
from stagecut.planner.report.verdict import time_ratio
from stagecut.planner.simulator.binding import Binding

WORTHLESS = 1e-3
"""Savings up to this share are no reason to buy anything."""
BOUNDARY_ROWS = frozenset({"pair", "link"})
"""Families whose rows belong to the boundary after a stage."""


def what_if_label(outcome: WhatIfOutcome) -> str:
    """What one more unit of a resource brings."""
    saved, most = outcome.saved, outcome.saved_at_most
    if saved is None:
        return "no plan found"
    if not outcome.unit:
        return f"a longer search saves {percent_label(saved)}" if saved > NOTICEABLE else ""
    if saved < -NOTICEABLE:
        return "nothing as fast found: the cluster is divided differently"
    # a limit has to hold as printed: it is rounded up
    limit = "" if most is None else f", {percent_label(math.ceil(most * 1e4 - NOTICEABLE) / 1e4)} at most"
    if most is not None and most <= WORTHLESS:
        return f"saves nothing, proven{limit}"
    return f"saves {percent_label(saved)}{limit}" if saved > NOTICEABLE else f"nothing found{limit}"


def binding_table(plan: Plan, binding: Binding) -> Table:
    """One row for each resource: where it comes closest to its limit, and how close."""
    slowest, fullest, row = binding.slowest, binding.fullest, binding.largest_row
    used, limit = float(binding.memory_bytes[fullest]), float(binding.limit_bytes[fullest])

    def share(seconds: float) -> str:
        return f"{percent_label(binding.share(seconds))} of the iteration"

    computing = f"computes for {share(binding.busy_s[slowest])}"
    on_path = percent_label(binding.share(binding.critical_s[slowest]))
    filled = f"{bytes_label(used)} of {bytes_label(limit)}, {percent_label(used / limit)}"
    idle = percent_label(1.0 - binding.share(float(binding.busy_s.mean())))
    rows = [
        ("device", _device_label(plan, slowest, binding), f"{computing}, {on_path} on the critical path"),
        ("bound", _row_label(row.family, row.index), f"{format_seconds(row.seconds)}, {share(row.seconds)}"),
        *(("link", link.name, f"in use for {share(link.busy_s)}") for link in binding.links[:1]),
        ("communication", "on the critical path", share(binding.communication_s)),
        ("memory", _device_label(plan, fullest, binding), filled),
        ("bubbles", "on all devices of the plan", f"{idle} of their time"),
    ]
    return text_table(rows, "limit", "where", "how much")


def what_if_table(outcomes: Sequence[WhatIfOutcome]) -> Table:
    """One row for each unit, in the order given."""
    rows = (
        (
            outcome.what,
            seconds_label(result.objective_s),
            "-" if result.objective_s is None else f"{time_ratio(outcome.planned_s, result.objective_s):.3f}x",
            seconds_label(result.bound_s),
            percent_label(result.gap),
            seconds_label(result.seconds or None),
            what_if_label(outcome),
        )
        for outcome, result in ((outcome, outcome.result) for outcome in outcomes)
    )
    columns = ("time", "speed-up", "bound", "gap", "search time")
    return text_table(rows, "with", right=columns, last=("effect",))


def binding_summary(plan: Plan, binding: Binding) -> dict[str, object]:
    """The same as :func:`binding_table` in plain values."""
    slowest, fullest, row = binding.slowest, binding.fullest, binding.largest_row
    used, limit = float(binding.memory_bytes[fullest]), float(binding.limit_bytes[fullest])
    return {
        "device": {
            "stages": _stages_on(plan, slowest, binding),
            "devices": list(plan.stages[slowest].devices),
            "busy_share": binding.share(binding.busy_s[slowest]),
            "critical_share": binding.share(binding.critical_s[slowest]),
        },
        "bound_row": {"family": row.family, "index": row.index, "bound_s": row.seconds},
        "links": [{"name": use.name, "busy_share": binding.share(use.busy_s)} for use in binding.links],
        "communication_share": binding.share(binding.communication_s),
        "memory": {
            "stages": _stages_on(plan, fullest, binding),
            "devices": list(plan.stages[fullest].devices),
            "memory_bytes": used,
            "limit_bytes": limit,
            "memory_share": used / limit,
        },
    }


def what_if_summary(outcome: WhatIfOutcome) -> dict[str, object]:
    """A row of :func:`what_if_table` in plain values."""
    return {
        **comparison_row(outcome.result),
        "what": outcome.what,
        "unit": outcome.unit,
        "saved_share": outcome.saved,
        "saved_share_at_most": outcome.saved_at_most,
    }


def _stages_on(plan: Plan, device_group: int, binding: Binding) -> list[int]:
    return list(range(device_group, len(plan.stages), binding.num_devices))


def _device_label(plan: Plan, device_group: int, binding: Binding) -> str:
    stages = _stages_on(plan, device_group, binding)
    numbers = ", ".join(map(str, stages))
    return f"{device_label(plan.stages[device_group].devices)} (stage{'s' if len(stages) > 1 else ''} {numbers})"


def _row_label(family: str, index: int) -> str:
    if family in ("flush", "home"):  # a single row for the whole plan
        return f"{family} row"
    return f"{family} row of stage{f's {index} and {index + 1}' if family in BOUNDARY_ROWS else f' {index}'}"
