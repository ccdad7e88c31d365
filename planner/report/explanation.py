"""What binds in a plan, and what one more unit of something would bring: as tables and as trees."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.result import Result
from stagecut.planner.core.units import format_seconds
from stagecut.planner.report.labels import bytes_label, device_label, percent_label, seconds_label
from stagecut.planner.report.summary import Tree, comparison_row
from stagecut.planner.report.text_table import add_row, text_table
from stagecut.planner.report.verdict import time_ratio
from stagecut.planner.simulator.binding import Binding

NOTHING = 1e-3
"""Savings that are no reason to buy anything."""
ROUNDING = 1e-6
"""Differences too small to speak of."""
BOUNDARY_ROWS = frozenset({"pair", "link"})
"""Families whose rows belong to the boundary behind a stage."""
PLAN_ROWS = frozenset({"flush"})
"""Families of a single row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOutcome:
    """The best plan found with one more unit, next to the plan without."""

    what: str
    unit: str
    """Empty for the cluster as it is."""
    planned_s: float
    """Iteration time of the plan that is explained."""
    result: Result

    @property
    def saved(self) -> float | None:
        """Share of the iteration time that the best plan found saves, None without one; negative where it is slower."""
        found_s = self.result.objective_s
        return None if found_s is None else 1.0 - time_ratio(found_s, self.planned_s)

    @property
    def saved_at_most(self) -> float | None:
        """Share that no plan exceeds, None where nothing is proven."""
        bound_s = self.result.bound_s
        return None if bound_s is None else max(0.0, 1.0 - time_ratio(bound_s, self.planned_s))

    @property
    def in_words(self) -> str:
        """What the unit brings; a limit holds as printed."""
        saved, most = self.saved, self.saved_at_most
        if saved is None:
            return "no plan found"
        if not self.unit:
            return f"a longer search saves {percent_label(saved)}" if saved > ROUNDING else ""
        if saved < -ROUNDING:
            return "nothing as fast found: the cluster is divided in another way"
        limit = "" if most is None else f", {_rounded_up(most)} at most"
        if most is not None and most <= NOTHING:
            return f"brings nothing, proven{limit}"
        return f"saves {percent_label(saved)}{limit}" if saved > ROUNDING else f"nothing found{limit}"


def binding_table(plan: Plan, binding: Binding) -> Table:
    """One row for each resource: where it is nearest to its limit, and how near."""
    table = text_table("what binds", "where", last=("how much",))
    slowest, fullest, row = binding.slowest, binding.fullest, binding.largest_row
    computing = percent_label(binding.share(binding.busy_s[slowest]))
    on_path = percent_label(binding.share(binding.critical_s[slowest]))
    add_row(
        table,
        "device",
        _device_label(plan, slowest, binding.num_devices),
        f"computes {computing} of the iteration, on the critical path {on_path}",
    )
    near = percent_label(binding.share(row.seconds))
    add_row(
        table, "bound", _row_label(row.family, row.index), f"{format_seconds(row.seconds)}, {near} of the iteration"
    )
    if binding.links:
        link = binding.links[0]
        add_row(table, "link", link.name, f"in use {percent_label(binding.share(link.busy_s))} of the iteration")
    waited = percent_label(binding.share(binding.communication_s))
    add_row(table, "communication", "on the critical path", f"{waited} of the iteration")
    used, limit = float(binding.memory_bytes[fullest]), float(binding.limit_bytes[fullest])
    add_row(
        table,
        "memory",
        _device_label(plan, fullest, binding.num_devices),
        f"{bytes_label(used)} of {bytes_label(limit)}, {percent_label(used / limit)}",
    )
    idle = percent_label(1.0 - binding.share(float(binding.busy_s.mean())))
    add_row(table, "bubbles", "on all devices of the plan", f"{idle} of their time")
    return table


def what_if_table(outcomes: Sequence[WhatIfOutcome]) -> Table:
    """One row for each unit, in the order given."""
    columns = ("time", "speed-up", "bound", "gap", "searched for")
    table = text_table("with", right=columns, last=("what it brings",))
    for outcome in outcomes:
        result = outcome.result
        faster = "-" if result.objective_s is None else f"{time_ratio(outcome.planned_s, result.objective_s):.3f}x"
        add_row(
            table,
            outcome.what,
            seconds_label(result.objective_s),
            faster,
            seconds_label(result.bound_s),
            percent_label(result.gap),
            seconds_label(result.seconds or None),
            outcome.in_words,
        )
    return table


def binding_summary(plan: Plan, binding: Binding) -> dict[str, object]:
    """The same as :func:`binding_table` in plain values."""
    slowest, fullest, row = binding.slowest, binding.fullest, binding.largest_row
    used, limit = float(binding.memory_bytes[fullest]), float(binding.limit_bytes[fullest])
    links = [{"name": use.name, "busy_share": binding.share(use.busy_s)} for use in binding.links]
    return {
        "device": {
            "stages": _stages_on(plan, slowest, binding.num_devices),
            "devices": list(plan.stages[slowest].devices),
            "busy_share": binding.share(binding.busy_s[slowest]),
            "critical_share": binding.share(binding.critical_s[slowest]),
        },
        "bound_row": {"family": row.family, "index": row.index, "bound_s": row.seconds},
        "links": links,
        "communication_share": binding.share(binding.communication_s),
        "memory": {
            "stages": _stages_on(plan, fullest, binding.num_devices),
            "devices": list(plan.stages[fullest].devices),
            "memory_bytes": used,
            "limit_bytes": limit,
            "memory_share": used / limit,
        },
    }


def what_if_summary(outcome: WhatIfOutcome) -> Tree:
    """A row of :func:`what_if_table` in plain values."""
    return {
        **comparison_row(outcome.result),
        "what": outcome.what,
        "unit": outcome.unit,
        "saved_share": outcome.saved,
        "saved_share_at_most": outcome.saved_at_most,
    }


def _rounded_up(share: float) -> str:
    """As :func:`percent_label`, but never less than the share itself: a claim has to hold as printed."""
    return percent_label(math.ceil(share * 1e4 - ROUNDING) / 1e4)


def _stages_on(plan: Plan, device_group: int, num_devices: int) -> list[int]:
    return list(range(device_group, len(plan.stages), num_devices))


def _device_label(plan: Plan, device_group: int, num_devices: int) -> str:
    stages = _stages_on(plan, device_group, num_devices)
    numbers = ", ".join(map(str, stages))
    return f"{device_label(plan.stages[device_group].devices)} (stage{'s' if len(stages) > 1 else ''} {numbers})"


def _row_label(family: str, index: int) -> str:
    if family in PLAN_ROWS:
        return f"{family} row"
    return f"{family} row of stage{f's {index} and {index + 1}' if family in BOUNDARY_ROWS else f' {index}'}"
