"""A plan as a table of its stages, for terminals of any width."""

from rich.table import Table

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.report.labels import (
    bytes_label,
    device_label,
    layer_label,
    percent_label,
    run_label,
    seconds_label,
)
from stagecut.planner.report.strategy_labels import strategy_label
from stagecut.planner.report.text_table import chosen_columns
from stagecut.planner.simulator.timeline import Timeline

SHARED = frozenset({"tensor parallel", "tp"})
"""Columns about tensor parallelism, left out where no stage uses it."""
SIZED = ("samples", "sent")
"""Samples of a forward and of a backward; of a message to the next stage and of one to the previous stage. Left out
where every process has the plan's micro-batch."""
STRATEGY = "strategy"
"""Takes the place of these columns where a stage is sharded."""
TEXT = frozenset({"stage", "layers", "device type", "devices", "replicas", "r", *SHARED, STRATEGY, "recompute"})
"""Columns aligned to the left; the others are numbers."""
WIDE = (
    *("stage", "layers", "device type", "devices", "replicas", "tensor parallel", STRATEGY, "recompute"),
    *(*SIZED, "F", "B", "transfer", "memory used", "limit", "busy"),
)
MEDIUM = (
    *("stage", "layers", "devices", "r", "tp", STRATEGY, "recompute"),
    *(*SIZED, "F", "B", "transfer", "memory / limit", "busy"),
)
NARROW = ("layers", "devices", "r", "tp", STRATEGY, "recompute", *SIZED, "F", "B", "memory / limit", "busy")


def stage_tables(problem: Problem, plan: Plan, *, costs: PlanCosts, timeline: Timeline) -> tuple[Table, ...]:
    """One row per stage: what runs where, how long, how full, how busy.

    The table with everything comes first, then the same with fewer and fewer columns. The narrow ones number the
    layers without naming them, and leave out recomputation where no stage recomputes. Of several pipelines the first
    is shown: they differ only in their devices.
    """
    types = {device.name: device.device_type for device in problem.cluster.devices()}
    used, limits = (
        [*map(bytes_label, column.tolist())] for column in (timeline.memory_high_water_bytes, costs.limit_bytes)
    )
    rows = [
        {
            "stage": str(index),
            "layers": layer_label(problem.model, stage.start, stage.stop),
            "device type": ", ".join(dict.fromkeys(types[name] for name in stage.devices)),
            "devices": device_label(stage.devices),
            "replicas": str(stage.replicas),
            "r": str(stage.replicas),
            **dict.fromkeys(SHARED, str(stage.tensor_parallel)),
            STRATEGY: strategy_label(problem.model, stage),
            "recompute": "yes" if stage.recompute else "no",
            "samples": f"{stage.forward_micro_batch} / {stage.backward_micro_batch}",
            "sent": f"{stage.forward_message or '-'} / {stage.backward_message or '-'}",
            "F": seconds_label(float(costs.forward_s[index])),
            "B": seconds_label(float(costs.backward_s[index])),
            "transfer": seconds_label(float(costs.transfer_s[index]) if index + 1 < len(plan.stages) else None),
            "memory used": used[index],
            "limit": limits[index],
            "memory / limit": f"{used[index]} / {limits[index]}",
            "busy": percent_label(float(timeline.busy_share[index])),
        }
        for index, stage in enumerate(plan.stages)
    ]
    numbered = [
        row | {"layers": run_label(stage.start, stage.stop)} for row, stage in zip(rows, plan.stages, strict=True)
    ]
    alone = _left_out(plan)
    alone = alone if plan.is_unequal else alone | set(SIZED)
    unused = alone if any(stage.recompute for stage in plan.stages) else alone | {"recompute"}
    versions = ((rows, WIDE, alone), (rows, MEDIUM, unused), (numbered, MEDIUM, unused), (numbered, NARROW, unused))
    return tuple(
        chosen_columns(shown, (name for name in columns if name not in hidden), text=TEXT)
        for shown, columns, hidden in versions
    )


def _left_out(plan: Plan) -> frozenset[str]:
    """Columns about how devices share a replica that say nothing of this plan."""
    if any(stage.sharding is not None for stage in plan.stages):
        return SHARED
    return frozenset({STRATEGY}) | (SHARED if all(stage.tensor_parallel == 1 for stage in plan.stages) else frozenset())
