"""Every choice tried: the oracle of the tests."""

import math

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.numerics.arrays import Ints

MOST_CHOICES = 2**22


def try_all(graph: ChoiceGraph) -> Ints | None:
    """The first of the cheapest legal choices; None if there is none.

    Arrays with one axis per node hold the cost, and the usage at every start, of all choices at once.
    """
    shape = tuple(graph.num_options.tolist())
    require(math.prod(shape) <= MOST_CHOICES, "choice graph", "choices", f"at most {MOST_CHOICES}", math.prod(shape))

    def along(values: Ints, *nodes: int) -> Ints:
        return values.reshape([shape[v] if v in nodes else 1 for v in range(len(shape))])

    legal = np.ones(shape, dtype=np.bool_)
    cost = np.zeros(shape, dtype=np.int64)
    for node in range(graph.num_nodes):
        own = along(graph.cost[graph.options(node)], node)
        legal &= own < IMPOSSIBLE
        cost += np.where(own < IMPOSSIBLE, own, 0)
    for edge, (u, v) in enumerate(graph.ends.tolist()):
        pair = along(graph.table(edge), u, v)
        legal &= pair < IMPOSSIBLE
        cost += np.where(pair < IMPOSSIBLE, pair, 0)
    for moment in np.unique(graph.start).tolist():
        usage = np.zeros(shape, dtype=np.int64)
        for node in np.flatnonzero((graph.start <= moment) & (moment < graph.stop)).tolist():
            usage += along(graph.usage[graph.options(node)], node)
        legal &= usage <= graph.usage_limit
    if not legal.any():
        return None
    best = np.argmin(np.where(legal, cost, np.iinfo(np.int64).max))
    return np.array(np.unravel_index(best, shape), dtype=np.int64)
