"""Options that some choice of the neighbours allows: arc consistency."""

import numpy as np

from stagecut.planner.choice_graphs.compiled import compiled
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.core.arrays import Bools, Ints


def consistent_options(graph: ChoiceGraph, *, dearest: int) -> Bools:
    """(options,): which options remain when every one needs a partner at each neighbour.

    Options and pairs that cost more than `dearest` count as impossible. Costs are at least 0, so no choice of a total
    up to `dearest` contains an option that is dropped. If one node loses all options, its neighbours lose theirs.
    """
    kept = graph.cost <= dearest
    first_edge, edge = incidence(graph.num_nodes, graph.ends)
    _propagate(graph.first_option, graph.ends, graph.first_pair, graph.pair_cost, first_edge, edge, dearest, kept)
    return kept


def incidence(num_nodes: int, ends: Ints) -> tuple[Ints, Ints]:
    """First (nodes + 1,) and edge (2 edges,): the edges of node v are edge[first[v] : first[v + 1]]."""
    degree = np.bincount(ends.ravel(), minlength=num_nodes)
    first = np.concatenate(([0], np.cumsum(degree)))
    return first, np.argsort(ends.ravel(), kind="stable") // 2


@compiled
def _propagate(
    first_option: Ints,
    ends: Ints,
    first_pair: Ints,
    pair_cost: Ints,
    first_edge: Ints,
    edge: Ints,
    dearest: int,
    kept: Bools,
) -> None:
    num_nodes = len(first_option) - 1
    waiting = np.ones(num_nodes, dtype=np.bool_)
    stack = np.arange(num_nodes)
    size = num_nodes
    while size > 0:
        size -= 1
        node = stack[size]
        waiting[node] = False
        for at in range(first_edge[node], first_edge[node + 1]):
            e = edge[at]
            neighbour = ends[e, 0] + ends[e, 1] - node
            is_first = ends[e, 0] == node
            table = pair_cost[first_pair[e] : first_pair[e + 1]]
            if _restrict(first_option, node, neighbour, is_first, table, dearest, kept) and not waiting[neighbour]:
                waiting[neighbour] = True
                stack[size] = neighbour
                size += 1


@compiled
def _restrict(
    first_option: Ints, node: int, neighbour: int, is_first: bool, table: Ints, dearest: int, kept: Bools
) -> bool:
    """Drop the options of the neighbour that no option kept by the node goes with."""
    begin, other = first_option[node], first_option[neighbour]
    num, num_other = first_option[node + 1] - begin, first_option[neighbour + 1] - other
    changed = False
    for q in range(num_other):
        if kept[other + q]:
            found = False
            for p in range(num):
                pair = p * num_other + q if is_first else q * num + p
                if kept[begin + p] and table[pair] <= dearest:
                    found = True
                    break
            if not found:
                kept[other + q] = False
                changed = True
    return changed
