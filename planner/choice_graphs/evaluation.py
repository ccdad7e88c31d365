"""What a choice costs and uses, computed anew from the graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.numerics.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Cost and usage of a choice, and what is wrong with it."""

    cost: int
    """Exact; impossible options and pairs are left out, since they are faults."""
    peak_usage: int
    """The largest usage at any moment."""
    moment: int | None
    """The first moment of the peak; None if no node is ever alive."""
    faults: tuple[str, ...]
    """One line each; empty for a legal choice."""


def evaluate(graph: ChoiceGraph, choices: Ints | Sequence[int]) -> Evaluation:
    """Sum costs and usages of a choice with integers of any size.

    Parameters
    ----------
    choices
        (nodes,): the number of the option chosen by every node, from 0.
    """
    chosen = np.asarray(choices)
    faults = _malformed(graph, chosen)
    if faults:
        return Evaluation(cost=0, peak_usage=0, moment=None, faults=faults)
    option_costs, pair_costs = graph.cost[graph.first_option[:-1] + chosen], _pair_costs(graph, chosen)
    peak, moment = _peak(graph, chosen)
    faults = (
        *(f"node {v}: option {chosen[v]} is impossible" for v in np.flatnonzero(option_costs >= IMPOSSIBLE).tolist()),
        *(_exclusion(graph, chosen, edge) for edge in np.flatnonzero(pair_costs >= IMPOSSIBLE).tolist()),
    )
    if peak > graph.usage_limit:
        over = peak - graph.usage_limit
        faults += (f"moment {moment}: usage {peak} is {over} over the limit of {graph.usage_limit}",)
    cost = sum(c for c in (*option_costs.tolist(), *pair_costs.tolist()) if c < IMPOSSIBLE)
    return Evaluation(cost=cost, peak_usage=peak, moment=moment, faults=faults)


def _malformed(graph: ChoiceGraph, chosen: Ints) -> tuple[str, ...]:
    if chosen.shape != (graph.num_nodes,):
        return (f"choices: {len(chosen)} for {graph.num_nodes} nodes",)
    outside = np.flatnonzero((chosen < 0) | (chosen >= graph.num_options))
    return tuple(f"node {v}: no option {chosen[v]}; it has 0 to {graph.num_options[v] - 1}" for v in outside.tolist())


def _pair_costs(graph: ChoiceGraph, chosen: Ints) -> Ints:
    u, v = graph.ends[:, 0], graph.ends[:, 1]
    return graph.pair_cost[graph.first_pair[:-1] + chosen[u] * graph.num_options[v] + chosen[v]]


def _exclusion(graph: ChoiceGraph, chosen: Ints, edge: int) -> str:
    u, v = graph.ends[edge].tolist()
    return f"edge {edge}: options {chosen[u]} and {chosen[v]} of nodes {u} and {v} exclude each other"


def _peak(graph: ChoiceGraph, chosen: Ints) -> tuple[int, int | None]:
    # the largest usages of all nodes add up to less than 2^62: see `building`
    alive = graph.start < graph.stop
    used = np.where(alive, graph.usage[graph.first_option[:-1] + chosen], 0)
    time = np.unique(graph.start[alive])
    if len(time) == 0:
        return 0, None
    change = np.zeros(len(time) + 1, dtype=np.int64)
    np.add.at(change, np.searchsorted(time, graph.start), used)
    np.subtract.at(change, np.searchsorted(time, graph.stop), used)
    usage = np.cumsum(change)[:-1]
    peak = int(np.argmax(usage))
    return int(usage[peak]), int(time[peak])
