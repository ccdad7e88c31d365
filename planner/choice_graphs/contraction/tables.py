"""Graphs and groups in the form that compiled loops take."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.core.numerics.arrays import Ints


class Tables(NamedTuple):
    """The arrays of a :class:`ChoiceGraph` that compiled loops need."""

    first_option: Ints
    cost: Ints
    ends: Ints
    first_pair: Ints
    pair_cost: Ints


class Groups(NamedTuple):
    """Nodes that determine each other; option p of a group is option[first_map[v] + p] at its node v."""

    group: Ints
    """(nodes,)"""
    first_map: Ints
    """(nodes + 1,)"""
    option: Ints
    """Counted within the node."""


def tables_of(graph: ChoiceGraph) -> Tables:
    """The graph as plain arrays."""
    return Tables(graph.first_option, graph.cost, graph.ends, graph.first_pair, graph.pair_cost)


def edges_by_node(graph: ChoiceGraph) -> tuple[Ints, Ints]:
    """First (nodes + 1,) and edge: the edges at node v are edge[first[v] : first[v + 1]], ascending."""
    end = graph.ends.ravel()
    first = np.concatenate([[0], np.cumsum(np.bincount(end, minlength=graph.num_nodes))])
    return first, np.argsort(end, kind="stable") // 2
