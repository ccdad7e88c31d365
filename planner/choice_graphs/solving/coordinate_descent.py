"""Plain coordinate descent: one node after another takes its best option for the neighbours as they are.

The search of AutoDDL (TPDS 2024) on the graphs at hand; here a quick first answer for small graphs, and a baseline.
"""

import numpy as np

from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.solvers.search.options import StopCheck

MOST_PASSES = 100


def descend(graph: ChoiceGraph, *, stop: StopCheck = lambda: False) -> Ints | None:
    """Descend from the least usages to a choice that no single change makes cheaper; None if it is not legal.

    Impossible options and pairs cost 1e17, so the descent leaves them where it can; the limit is kept throughout.
    """
    first = graph.first_option
    choices = np.array([np.argmin(graph.usage[graph.options(v)]) for v in range(graph.num_nodes)], dtype=np.int64)
    tables: list[list[tuple[int, Ints]]] = [[] for _ in range(graph.num_nodes)]
    for edge, (u, v) in enumerate(graph.ends.tolist()):
        tables[u].append((v, graph.table(edge)))
        tables[v].append((u, graph.table(edge).T))
    time = np.unique(graph.start)
    begin, end = np.searchsorted(time, graph.start).tolist(), np.searchsorted(time, graph.stop).tolist()
    used = np.zeros(len(time), dtype=np.int64)
    for v, usage in enumerate(graph.usage[first[:-1] + choices].tolist()):
        used[begin[v] : end[v]] += usage
    for _ in range(MOST_PASSES):
        before = choices.copy()
        for v in range(graph.num_nodes):
            usage, alive = graph.usage[graph.options(v)], slice(begin[v], end[v])
            used[alive] -= usage[choices[v]]
            cost = graph.cost[graph.options(v)] + sum(table[:, choices[u]] for u, table in tables[v])
            fits = usage <= graph.usage_limit - used[alive].max(initial=0)
            best = np.argmin(np.where(fits, cost, np.iinfo(np.int64).max))
            if cost[best] < cost[choices[v]] and fits[best]:
                choices[v] = best
            used[alive] += usage[choices[v]]
        if stop() or np.array_equal(before, choices):
            break
    return None if evaluate(graph, choices).faults else choices
