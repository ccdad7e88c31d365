"""Exact event times of many plans in one call.

Plans of one structure (warm-up depths, number of micro-batches, links shared by the same flows) are
evaluated together: first as if every flow had its own links (`levels`); where links are shared, the
plans in which tasks do meet on a link are then played event by event (`contention`). Both only add and
take maxima of the same numbers, so their times agree to the last bit.
"""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.compilation import interleaved_graph, pipeline_graph, sublot_graph
from stagecut.planner.simulator.contention import serve, served_in_order
from stagecut.planner.simulator.iteration_graph import IterationGraph, duration_table
from stagecut.planner.simulator.levels import evaluate, level_order
from stagecut.planner.simulator.routes import RouteNames, Routes, flow_routes, shared_routes

CHUNK_TIMES = 1 << 19
"""Times evaluated at once (4 MB): larger populations are split so that they stay in the processor's cache."""


def iteration_times(costs: Sequence[PlanCosts]) -> Floats:
    """Iteration time of each plan in seconds, shape (len(costs),)."""
    groups: dict[tuple[IterationGraph, Routes], list[int]] = {}
    for index, cost in enumerate(costs):
        groups.setdefault((graph_of(cost), shared_routes(flow_routes(cost))), []).append(index)
    times_s = np.empty(len(costs))
    for (graph, routes), members in groups.items():
        size = max(1, CHUNK_TIMES // graph.num_tasks)
        for first in range(0, len(members), size):
            chunk = members[first : first + size]
            times_s[chunk] = _group_times(graph, routes, [costs[index] for index in chunk])
    return times_s


def run(graph: IterationGraph, durations_s: Floats, *, routes: RouteNames | None = None) -> tuple[Floats, Floats]:
    """Start and end of every task in seconds, each of shape (n, plans).

    Parameters
    ----------
    durations_s
        Seconds of each task for each plan, shape (n, plans).
    routes
        Names of the links that each flow of the graph uses; None if no links are shared.

    Raises
    ------
    BadInputError
        If a duration is negative or no number, or if an argument has the wrong shape.
    """
    _check(graph, durations_s, routes)
    order = level_order(graph)
    shared = shared_routes(routes or ())
    rows_s = np.zeros((graph.num_tasks + 1, durations_s.shape[1]))
    rows_s[:-1] = durations_s[order.task]
    contended = _evaluate(graph, shared, rows_s)
    played = {plan: serve(graph, shared, durations_s[:, plan]) for plan in contended}
    ends_s = rows_s[order.row]
    for plan, (_, ends) in played.items():
        ends_s[:-1, plan] = ends
    starts_s = np.maximum(*(ends_s[before] for before in graph.predecessors.T))
    for plan, (starts, _) in played.items():
        starts_s[:, plan] = np.maximum(starts_s[:, plan], starts)
    return starts_s, ends_s[:-1]


def graph_of(costs: PlanCosts, *, micro_batch: int = 1) -> IterationGraph:
    """Graph of a plan's schedule, in micro-batches of so many samples; where some are cut, of as many as they have."""
    order = costs.interleaving
    if order is not None:
        return interleaved_graph(order.num_devices, order.chunks, order.num_microbatches, micro_batch)
    depths, num_halved = tuple(costs.warmup_depth.tolist()), costs.num_halved
    if costs.sublots is not None:
        return sublot_graph(costs.sublots.cut)
    samples = costs.variant.micro_batch if num_halved else micro_batch
    return pipeline_graph(depths, costs.variant.num_microbatches, samples, num_halved)


def _group_times(graph: IterationGraph, routes: Routes, costs: list[PlanCosts]) -> Floats:
    """Iteration times of plans of one structure, shape (len(costs),)."""
    table = duration_table(graph, costs)
    if any(routes) and len(costs) == 1:  # looking first does not pay: most plans have contention
        return np.array([_played_time(graph, routes, table[:, 0])])
    rows_s = table[level_order(graph).cell]
    contended = _evaluate(graph, routes, rows_s)
    times_s: Floats = rows_s[-1 - graph.num_stages : -1].max(axis=0)
    for plan in contended:
        times_s[plan] = _played_time(graph, routes, table[:, plan])
    return times_s


def _played_time(graph: IterationGraph, routes: Routes, table: Floats) -> float:
    _, ends = serve(graph, routes, table[graph.cell])
    return max(ends[graph.first_update :])


def _evaluate(graph: IterationGraph, routes: Routes, rows_s: Floats) -> list[int]:
    """Replace durations by end times without contention; return the plans that do have contention."""
    num_plans = rows_s.shape[1]
    evaluate(level_order(graph), rows_s if num_plans > 1 else rows_s[:, 0])
    if not any(routes):
        return []
    good = served_in_order(graph, routes, rows_s)
    return [plan for plan in range(num_plans) if not good[plan]]


def _check(graph: IterationGraph, durations_s: Floats, routes: RouteNames | None) -> None:
    if durations_s.ndim != 2 or len(durations_s) != graph.num_tasks:
        raise BadInputError(f"durations: shape must be ({graph.num_tasks}, plans), got {durations_s.shape}")
    if not np.all(durations_s >= 0):
        raise BadInputError("durations: every task must take at least 0 seconds")
    if routes is not None and len(routes) != graph.num_flows:
        raise BadInputError(f"routes: there must be {graph.num_flows}, one per flow, got {len(routes)}")
