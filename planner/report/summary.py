"""Results as trees of plain values, ready for JSON."""

import math
from collections.abc import Mapping, Sequence

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.result import HistoryPoint, Result, Shortage
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.iteration_graph import Kind
from stagecut.planner.simulator.timeline import Timeline

SCHEMA = 1
"""Raised when a key changes its meaning or goes away."""

Tree = Mapping[str, object]


def result_summary(result: Result, *, plan: Tree | None, provenance: Tree) -> dict[str, object]:
    """The answer of one solver.

    Parameters
    ----------
    plan
        The plan as a tree, as the plan file has it; None without one.
    provenance
        Versions, options, seed, hashes of the inputs.
    """
    return {
        "schema": SCHEMA,
        **comparison_row(result),
        "row_bound_s": result.row_bound_s,
        "own_objective": own_objective_tree(result),
        "counts": dict(result.counts),
        "step_seconds": dict(result.step_seconds),
        "history": [_history_point(point) for point in result.history],
        "shortages": [_shortage(shortage) for shortage in result.shortages],
        "plan": plan,
        "provenance": provenance,
    }


def comparison_summary(results: Sequence[Result], *, provenance: Tree) -> dict[str, object]:
    """The answers of several solvers on one problem."""
    return {
        "schema": SCHEMA,
        "results": [comparison_row(result) for result in results],
        "provenance": provenance,
    }


def comparison_row(result: Result) -> dict[str, object]:
    """The answer of one solver without its plan."""
    return {
        "solver": result.solver,
        "status": str(result.status),
        "stopped_by": None if result.stopped_by is None else str(result.stopped_by),
        "fault": None if result.fault is None else result.fault.reason,
        "objective_s": result.objective_s,
        "bound_s": result.bound_s,
        "gap": result.gap,
        "seconds": result.seconds,
    }


def own_objective_tree(result: Result) -> dict[str, object] | None:
    """What the solver itself minimised, where that is not the simulated time."""
    own = result.own_objective
    return None if own is None else {"name": own.name, "value": own.value}


def simulation_summary(plan: Plan, *, costs: PlanCosts, timeline: Timeline) -> dict[str, object]:
    """One simulated iteration: times, memory and busy share of every stage, and the critical path."""
    return {
        "schema": SCHEMA,
        "iteration_s": timeline.iteration_s,
        "bubble_fraction": timeline.bubble_fraction,
        "pipelines": len(plan.pipelines),
        "chunks": plan.chunks,
        "num_sliced": plan.num_sliced,
        "stages": [_stage(plan, costs, timeline, index) for index in range(costs.num_stages)],
        "critical_path": [_task(timeline, task) for task in timeline.critical_path],
    }


def _stage(plan: Plan, costs: PlanCosts, timeline: Timeline, index: int) -> dict[str, object]:
    stage = plan.stages[index]
    limit_bytes = float(costs.limit_bytes[index])
    return {
        "layers": [stage.start, stage.stop],
        "devices": list(stage.devices),
        "replicas": stage.replicas,
        "tensor_parallel": stage.tensor_parallel,
        "recompute": stage.recompute,
        "forward_s": float(costs.forward_s[index]),
        "backward_s": float(costs.backward_s[index]),
        "transfer_s": float(costs.transfer_s[index]) if index + 1 < costs.num_stages else None,
        "sync_s": float(costs.sync_s[index]),
        "update_s": float(costs.update_s[index]),
        "memory_bytes": float(timeline.memory_high_water_bytes[index]),
        "limit_bytes": limit_bytes if math.isfinite(limit_bytes) else None,
        "busy_share": float(timeline.busy_share[index]),
    }


def _task(timeline: Timeline, task: int) -> dict[str, object]:
    return {
        "kind": Kind(int(timeline.kind[task])).name.lower(),
        "stage": int(timeline.stage[task]),
        "samples": [int(timeline.lo[task]), int(timeline.hi[task])],
        "start_s": float(timeline.start_s[task]),
        "end_s": float(timeline.end_s[task]),
    }


def _history_point(point: HistoryPoint) -> dict[str, object]:
    return {"seconds": point.seconds, "objective_s": point.objective_s, "bound_s": point.bound_s}


def _shortage(shortage: Shortage) -> dict[str, object]:
    return {
        "device_type": shortage.device_type,
        "layers": list(shortage.layers),
        "needed_bytes": shortage.needed_bytes,
        "limit_bytes": shortage.limit_bytes,
        "short_bytes": shortage.short_bytes,
        "remedy": shortage.remedy,
    }
