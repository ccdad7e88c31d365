"""Copies of the nodes of a network without positions, one for each number of stages to come, which need not be built.

Loops over arcs, and over the positions that each of them may have, see as much as the network with positions shows.
"""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.network.arcs import Arcs
from stagecut.planner.network.graph import LayeredGraph


class Copies(NamedTuple):
    """The copies of nodes, numbered node by node, those of one node by the stages to come; and arcs between them.

    At position q arc a leads from copy `tail[a]` + q to copy `head[a]` + q. The sink is the last copy.
    """

    tail: Ints
    head: Ints
    """As `tail`, of shape (A,)."""
    least: Ints
    """Smallest and largest position of each arc that leads from a copy to a copy, shape (A,)."""
    largest: Ints
    of_nodes: Ints
    """How many copies each node has, shape (N,); the first ones are those of the source."""
    size: int
    """How many there are in all."""


def copies_of(graph: LayeredGraph, arcs: Arcs) -> Copies:
    """The copies between which the arcs that count lead."""
    order, tails = graph.by_tail, graph.tail[graph.by_tail]
    fewest, most = np.ones(graph.num_nodes, dtype=np.int64), np.zeros(graph.num_nodes, dtype=np.int64)
    if len(order):
        begins = np.flatnonzero(np.diff(tails, prepend=-1))
        fewest[tails[begins]] = np.minimum.reduceat(arcs.least_position[order], begins)
        most[tails[begins]] = np.maximum.reduceat(arcs.largest_position[order], begins)
    fewest[-1] = most[-1] = 0
    widths = np.maximum(0, most - fewest + 1)
    offset = np.cumsum(widths) - widths - fewest
    passing = arcs.is_stage.astype(np.int64)
    return Copies(
        tail=offset[graph.tail],
        head=offset[graph.head] - passing,
        least=np.maximum(arcs.least_position, fewest[graph.head] + passing),
        largest=np.minimum(arcs.largest_position, most[graph.head] + passing),
        of_nodes=widths,
        size=int(widths.sum()),
    )


def nodes_of(graph: LayeredGraph, arcs: Arcs) -> Copies:
    """The nodes of a network with positions, in place of copies."""
    position = arcs.least_position
    each = np.ones(graph.num_nodes, dtype=np.int64)
    return Copies(graph.tail - position, graph.head - position, position, position, each, graph.num_nodes)
