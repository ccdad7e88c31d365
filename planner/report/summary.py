"""Results as trees of plain values, ready for JSON."""

import math
from collections.abc import Mapping
from dataclasses import asdict

from stagecut.planner.analysis.prediction import Played
from stagecut.planner.analysis.throughput import Throughput
from stagecut.planner.core.result import Result
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.report.strategy_labels import strategy_label
from stagecut.planner.simulator.timeline import Timeline

SCHEMA = 1
"""Version of the JSON answers: raised when a key changes its meaning or goes away."""

SHORTAGE_KEYS = ("device_type", "layers", "needed_bytes", "limit_bytes", "short_bytes", "remedy")
THROUGHPUT_KEYS = (
    *("samples_per_s", "tokens_per_s", "model_flops_per_s", "peak_flops_per_s", "model_flops_utilisation"),
    *("price_per_hour", "price_per_million_samples", "price_per_million_tokens"),
)


def result_summary(result: Result, *, plan: object, provenance: Mapping[str, object]) -> dict[str, object]:
    """The answer of one solver, with plan (None without one) and provenance as in a plan file."""
    return {
        "schema": SCHEMA,
        **comparison_row(result),
        "row_bound_s": result.row_bound_s,
        "own_objective": own_objective_tree(result),
        "counts": dict(result.counts),
        "step_seconds": dict(result.step_seconds),
        "history": [values_of(point, "seconds", "objective_s", "bound_s") for point in result.history],
        "shortages": [values_of(shortage, *SHORTAGE_KEYS) for shortage in result.shortages],
        "plan": plan,
        "provenance": provenance,
    }


def comparison_row(result: Result) -> dict[str, object]:
    """The answer of one solver without its plan."""
    values = values_of(result, "solver", "status", "stopped_by", "objective_s", "bound_s", "gap", "seconds")
    return {**values, "fault": None if result.fault is None else result.fault.reason}


def own_objective_tree(result: Result) -> dict[str, object] | None:
    """What the solver itself minimised, where that is not the simulated time."""
    return None if result.own_objective is None else values_of(result.own_objective, "name", "value")


def throughput_summary(throughput: Throughput | None) -> dict[str, object]:
    """Rates, utilisation and price; all None without a plan, or if an iteration takes no time."""
    return dict.fromkeys(THROUGHPUT_KEYS) if throughput is None else values_of(throughput, *THROUGHPUT_KEYS)


def simulation_summary(played: Played) -> dict[str, object]:
    """One simulated iteration: times, memory and busy share of every stage, and the critical path."""
    timeline = played.timeline
    return {
        "schema": SCHEMA,
        **values_of(timeline, "iteration_s", "bubble_fraction"),
        **values_of(played.plan, "chunks", "num_sliced"),
        **throughput_summary(played.throughput),
        "pipelines": len(played.plan.pipelines),
        "stages": stage_summaries(played),
        "critical_path": [_task(timeline, task) for task in timeline.critical_path],
    }


def stage_summaries(played: Played) -> list[dict[str, object]]:
    """What every stage of a pipeline does, in words and numbers."""
    return [
        _stage(played, index) | {"strategy": strategy_label(played.problem.model, stage), "memory": asdict(parts)}
        for index, (stage, parts) in enumerate(zip(played.plan.stages, played.memory, strict=True))
    ]


def values_of(source: object, *names: str) -> dict[str, object]:
    """Attributes of an object by name; tuples become lists when written as JSON."""
    return {name: getattr(source, name) for name in names}


def _stage(played: Played, index: int) -> dict[str, object]:
    stage, costs, timeline = played.plan.stages[index], played.costs, played.timeline
    limit_bytes = float(costs.limit_bytes[index])
    return {
        "layers": [stage.start, stage.stop],
        **values_of(stage, "devices", "replicas", "tensor_parallel", "recompute"),
        **{name: float(getattr(costs, name)[index]) for name in ("forward_s", "backward_s", "sync_s", "update_s")},
        "transfer_s": float(costs.transfer_s[index]) if index + 1 < costs.num_stages else None,
        "memory_bytes": float(timeline.memory_high_water_bytes[index]),
        "limit_bytes": limit_bytes if math.isfinite(limit_bytes) else None,
        "busy_share": float(timeline.busy_share[index]),
    }


def _task(timeline: Timeline, task: int) -> dict[str, object]:
    return {
        "kind": TaskKind(int(timeline.kind[task])).name.lower(),
        "stage": int(timeline.stage[task]),
        "samples": [int(timeline.lo[task]), int(timeline.hi[task])],
        "start_s": float(timeline.start_s[task]),
        "end_s": float(timeline.end_s[task]),
    }
