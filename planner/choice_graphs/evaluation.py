"""What a choice costs and uses, computed anew from the graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.arrays import Ints


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
    option_costs = graph.cost[graph.first_option[:-1] + chosen].tolist()
    pair_costs = _pair_costs(graph, chosen).tolist()
    peak, moment = _peak(graph, chosen)
    faults = (
        *(f"node {v}: option {chosen[v]} is impossible" for v, c in enumerate(option_costs) if c >= IMPOSSIBLE),
        *(
            f"edge {e}: options {chosen[u]} and {chosen[v]} of nodes {u} and {v} exclude each other"
            for e, (c, (u, v)) in enumerate(zip(pair_costs, graph.ends.tolist(), strict=True))
            if c >= IMPOSSIBLE
        ),
    )
    if peak > graph.usage_limit:
        over = peak - graph.usage_limit
        faults += (f"moment {moment}: usage {peak} is {over} over the limit of {graph.usage_limit}",)
    cost = sum(c for c in (*option_costs, *pair_costs) if c < IMPOSSIBLE)
    return Evaluation(cost=cost, peak_usage=peak, moment=moment, faults=faults)


def _malformed(graph: ChoiceGraph, chosen: Ints) -> tuple[str, ...]:
    if chosen.shape != (graph.num_nodes,):
        return (f"choices: {len(chosen)} for {graph.num_nodes} nodes",)
    outside = np.flatnonzero((chosen < 0) | (chosen >= graph.num_options))
    return tuple(f"node {v}: no option {chosen[v]}; it has 0 to {graph.num_options[v] - 1}" for v in outside.tolist())


def _pair_costs(graph: ChoiceGraph, chosen: Ints) -> Ints:
    u, v = graph.ends[:, 0], graph.ends[:, 1]
    return graph.pair_cost[graph.first_pair[:-1] + chosen[u] * graph.num_options[v] + chosen[v]]


def _peak(graph: ChoiceGraph, chosen: Ints) -> tuple[int, int | None]:
    used = graph.usage[graph.first_option[:-1] + chosen].tolist()
    change: dict[int, int] = {}
    for usage, start, stop in zip(used, graph.start.tolist(), graph.stop.tolist(), strict=True):
        if start < stop:
            change[start] = change.get(start, 0) + usage
            change[stop] = change.get(stop, 0) - usage
    now, peak, at = 0, -1, None
    for moment in sorted(change)[:-1]:
        now += change[moment]
        if now > peak:
            peak, at = now, moment
    return max(peak, 0), at
