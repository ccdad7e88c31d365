"""Nodes that determine each other's options, and how."""

import numpy as np

from stagecut.planner.choice_graphs.contraction.tables import Groups, Tables, edges_by_node, tables_of
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.numerics.arrays import Bools, Ints
from stagecut.planner.core.numerics.compiled import compiled


def groups_of_nodes(graph: ChoiceGraph, supported: Bools) -> Groups:
    """Group the nodes connected by one-to-one edges, numbered by their first nodes.

    On such an edge every supported option of either end has exactly one possible partner: choosing at one end chooses
    at the other. So a choice at the first node of a group is a choice at all of them.
    """
    tables = tables_of(graph)
    before = np.concatenate([[0], np.cumsum(supported)])
    first_map: Ints = before[graph.first_option]
    one_to_one = _one_to_one(tables, supported, first_map)
    group, option = _spread(tables, supported, first_map, one_to_one, *edges_by_node(graph))
    return Groups(group, first_map, option)


@compiled
def _one_to_one(tables: Tables, supported: Bools, first_map: Ints) -> Bools:
    """Edges with as many possible pairs as either end has options: since all have a partner, they have only one."""
    found = np.zeros(len(tables.ends), dtype=np.bool_)
    for e in range(len(found)):
        u, v = tables.ends[e]
        wanted = first_map[u + 1] - first_map[u]
        if wanted != first_map[v + 1] - first_map[v]:
            continue
        theirs = supported[tables.first_option[v] : tables.first_option[v + 1]]
        pairs = 0
        for p in range(tables.first_option[u + 1] - tables.first_option[u]):
            if supported[tables.first_option[u] + p] and pairs <= wanted:
                row = tables.first_pair[e] + p * len(theirs)
                for q in range(len(theirs)):
                    pairs += theirs[q] and tables.pair_cost[row + q] < IMPOSSIBLE
        found[e] = pairs == wanted
    return found


@compiled
def _spread(
    tables: Tables, supported: Bools, first_map: Ints, one_to_one: Bools, first_edge: Ints, edge: Ints
) -> tuple[Ints, Ints]:
    """Walk from every node not yet reached along one-to-one edges, and follow its options; group and option."""
    num_nodes, num_groups = len(first_map) - 1, 0
    group = np.full(num_nodes, -1)
    option = np.empty(first_map[-1], dtype=np.int64)
    stack = np.empty(num_nodes, dtype=np.int64)
    for root in range(num_nodes):
        if group[root] >= 0:
            continue
        group[root], stack[0], top = num_groups, root, 1
        num_groups += 1
        mine = supported[tables.first_option[root] : tables.first_option[root + 1]]
        option[first_map[root] : first_map[root + 1]] = np.flatnonzero(mine)
        while top > 0:
            top -= 1
            node = stack[top]
            for at in range(first_edge[node], first_edge[node + 1]):
                other = tables.ends[edge[at]].sum() - node
                if one_to_one[edge[at]] and group[other] < 0:
                    group[other], stack[top] = group[root], other
                    top += 1
                    _follow(tables, supported, first_map, option, edge[at], node)
    return group, option


@compiled
def _follow(tables: Tables, supported: Bools, first_map: Ints, option: Ints, edge: int, node: int) -> None:
    """Set the options of the other end of a one-to-one edge to the partners of those of the node."""
    u, v = tables.ends[edge]
    other = u + v - node
    theirs = supported[tables.first_option[other] : tables.first_option[other + 1]]
    num_mine = tables.first_option[node + 1] - tables.first_option[node]
    step_mine, step_theirs = (len(theirs), 1) if node == u else (1, num_mine)
    for i in range(first_map[node + 1] - first_map[node]):
        row = tables.first_pair[edge] + option[first_map[node] + i] * step_mine
        for q in range(len(theirs)):
            if theirs[q] and tables.pair_cost[row + q * step_theirs] < IMPOSSIBLE:
                option[first_map[other] + i] = q
