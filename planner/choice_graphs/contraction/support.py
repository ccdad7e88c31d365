"""Options that can be part of a choice: possible themselves, and with a possible partner on every edge."""

import numpy as np

from stagecut.planner.choice_graphs.contraction.tables import Tables, edges_by_node, tables_of
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.numerics.arrays import Bools, Ints
from stagecut.planner.core.numerics.compiled import compiled


def supported_options(graph: ChoiceGraph) -> Bools:
    """Which options (options,) have a possible partner at every neighbour, itself of that kind (arc consistency).

    An option without one at some neighbour is in no possible choice, and neither is what relies on it: leaving all of
    them out changes nothing. If a node has none left, no choice is possible.
    """
    supported = graph.possible()
    _propagate(tables_of(graph), *edges_by_node(graph), supported)
    return supported


@compiled
def _propagate(tables: Tables, first_edge: Ints, edge: Ints, supported: Bools) -> None:
    """Take nodes from a queue, strike the options of their neighbours that they leave alone, queue who lost some."""
    first_option, ends = tables.first_option, tables.ends
    num_nodes = len(first_option) - 1
    queue = np.arange(num_nodes)
    queued = np.ones(num_nodes, dtype=np.bool_)
    head, waiting = 0, num_nodes
    while waiting > 0:
        node = queue[head]
        head = (head + 1) % num_nodes
        waiting -= 1
        queued[node] = False
        for at in range(first_edge[node], first_edge[node + 1]):
            u, v = ends[edge[at]]
            mine, other = supported[first_option[node] : first_option[node + 1]], u + v - node
            theirs = supported[first_option[other] : first_option[other + 1]]
            table = tables.pair_cost[tables.first_pair[edge[at]] : tables.first_pair[edge[at] + 1]]
            if _strike(table, mine, theirs, node == u) and not queued[other]:
                queued[other] = True
                queue[(head + waiting) % num_nodes] = other
                waiting += 1


@compiled
def _strike(table: Ints, mine: Bools, theirs: Bools, by_rows: bool) -> bool:
    """Strike the others' options without a partner among mine; my options are the rows, or the columns."""
    step_mine, step_theirs = (len(theirs), 1) if by_rows else (1, len(mine))
    struck = False
    for q in range(len(theirs)):
        if theirs[q]:
            found = False
            for p in range(len(mine)):
                if mine[p] and table[p * step_mine + q * step_theirs] < IMPOSSIBLE:
                    found = True
                    break
            if not found:
                theirs[q], struck = False, True
    return struck
