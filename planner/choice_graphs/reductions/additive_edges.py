"""Edges whose costs are sums of one cost per end."""

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE
from stagecut.planner.choice_graphs.reductions.workbench import Workbench, plus


def drop_additive_edges(bench: Workbench, node: int) -> bool:
    """Move the costs of an edge to its ends where w[p, q] = a[p] + b[q] for all pairs.

    With a[p] the least of row p and b[q] the least of column q of what remains, both at least 0. If the edge is
    additive at all, w = a' + b' gives a = a' + min b' and b = b' - min b', and nothing remains. Every choice then
    costs the same as before. An edge to a node with one option is always additive.
    """
    changed = False
    for neighbour, table in list(bench.tables[node].items()):
        by_row = table.min(axis=1)
        rest = table - by_row[:, None]
        by_column = rest.min(axis=0)
        if table.max() < IMPOSSIBLE and (rest == by_column).all():
            bench.drop_edge(node, neighbour)
            bench.cost[node] = plus(bench.cost[node], by_row)
            bench.cost[neighbour] = plus(bench.cost[neighbour], by_column)
            changed = True
    return changed
