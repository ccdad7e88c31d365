"""Exact event times of many plans in one call.

Plans of one structure (warm-up depths, number of micro-batches, links shared by the same flows) share a graph, on which
the compiled loop of :mod:`stagecut.planner.simulator.event_loop` plays them one after another.
"""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.compilation import interleaved_graph, pipeline_graph, sublot_graph
from stagecut.planner.simulator.event_loop import NO_DEADLINE, Deadline, game_of, links_of, play
from stagecut.planner.simulator.iteration_graph import IterationGraph, duration_table
from stagecut.planner.simulator.routes import RouteNames, Routes, flow_routes, shared_routes


def iteration_times(costs: Sequence[PlanCosts]) -> Floats:
    """Iteration time of each plan in seconds, shape (len(costs),)."""
    groups: dict[tuple[IterationGraph, Routes], list[int]] = {}
    for index, cost in enumerate(costs):
        groups.setdefault((graph_of(cost), shared_routes(flow_routes(cost))), []).append(index)
    times_s = np.empty(len(costs))
    for (graph, routes), members in groups.items():
        table_s = duration_table(graph, [costs[index] for index in members])
        times_s[members] = times_on(graph, links_of(routes, graph.num_flows), table_s)
    return times_s


def times_on(graph: IterationGraph, links: Ints, table_s: Floats, deadline: Deadline = NO_DEADLINE) -> Floats:
    """Iteration times of plans of one graph, shape (plans,); see :func:`duration_table`, for the links :func:`play`."""
    return play(game_of(graph), links, table_s, *_no_times(graph), deadline)


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
    game = game_of(graph)._replace(cell=np.arange(graph.num_tasks))
    links = links_of(shared_routes(routes or ()), graph.num_flows)
    plans = [_no_times(graph) for _ in range(durations_s.shape[1])]
    for plan, (starts_s, ends_s) in enumerate(plans):
        play(game, links, np.ascontiguousarray(durations_s[:, plan])[None], starts_s, ends_s, NO_DEADLINE)
        np.maximum(starts_s, np.maximum(*(ends_s[before] for before in graph.predecessors.T)), out=starts_s)
    starts, ends = zip(*plans, strict=True)
    return np.stack(starts, axis=1), np.stack(ends, axis=1)[:-1]


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


def _no_times(graph: IterationGraph) -> tuple[Floats, Floats]:
    """Memory for start and end times, see :func:`play`."""
    return np.zeros(graph.num_tasks), np.empty(graph.num_tasks + 1)


def _check(graph: IterationGraph, durations_s: Floats, routes: RouteNames | None) -> None:
    if durations_s.ndim != 2 or len(durations_s) != graph.num_tasks:
        raise BadInputError(f"durations: shape must be ({graph.num_tasks}, plans), got {durations_s.shape}")
    if not np.all(durations_s >= 0):
        raise BadInputError("durations: every task must take at least 0 seconds")
    if routes is not None and len(routes) != graph.num_flows:
        raise BadInputError(f"routes: there must be {graph.num_flows}, one per flow, got {len(routes)}")
