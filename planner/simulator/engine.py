"""Exact event times of many plans in one call.

Plans of one structure (warm-up depths, number of micro-batches, links shared by the same flows) share a graph, on which
the compiled loop of :mod:`stagecut.planner.simulator.event_loop` plays them one after another.
"""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.compilation import interleaved_graph, pipeline_graph, sublot_graph
from stagecut.planner.simulator.event_loop import Game, game_of, play, queues
from stagecut.planner.simulator.iteration_graph import IterationGraph, duration_table
from stagecut.planner.simulator.routes import RouteNames, Routes, flow_routes, shared_routes

CHUNK_TIMES = 1 << 16
"""End times held at once (0.5 MB): larger populations are split so that they stay in the processor's cache."""


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
            table_s = duration_table(graph, [costs[index] for index in chunk])
            _, ends_s = _played(graph, routes, game_of(graph), table_s)
            times_s[chunk] = ends_s[:, graph.first_update : -1].max(axis=1)
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
    game = game_of(graph)._replace(cell=np.arange(graph.num_tasks))
    starts_s, ends_s = _played(graph, shared_routes(routes or ()), game, np.ascontiguousarray(durations_s.T))
    starts_s = np.maximum(starts_s, np.maximum(*(ends_s[:, before] for before in graph.predecessors.T)))
    return starts_s.T, ends_s[:, :-1].T


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


def _played(graph: IterationGraph, routes: Routes, game: Game, seconds: Floats) -> tuple[Floats, Floats]:
    """Start times of the tasks that use a shared link, else zero, and end times; see :func:`play`."""
    starts_s = np.zeros((len(seconds), graph.num_tasks))
    ends_s = np.empty((len(seconds), graph.num_tasks + 1))
    play(game, queues(routes, graph.num_flows), seconds, starts_s, ends_s)
    return starts_s, ends_s


def _check(graph: IterationGraph, durations_s: Floats, routes: RouteNames | None) -> None:
    if durations_s.ndim != 2 or len(durations_s) != graph.num_tasks:
        raise BadInputError(f"durations: shape must be ({graph.num_tasks}, plans), got {durations_s.shape}")
    if not np.all(durations_s >= 0):
        raise BadInputError("durations: every task must take at least 0 seconds")
    if routes is not None and len(routes) != graph.num_flows:
        raise BadInputError(f"routes: there must be {graph.num_flows}, one per flow, got {len(routes)}")
