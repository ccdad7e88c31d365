"""Shortest paths through a layered directed graph, as array code."""

import itertools
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class ArcLevel:
    """Arcs at the nodes of one level, grouped by node."""

    arcs: Ints
    others: Ints
    """The other end of each arc."""
    begins: Ints
    """Where the arcs of each node begin."""
    nodes: Ints
    """The nodes by which the arcs are grouped."""


class LayeredGraph:
    """A graph whose nodes are numbered level by level; every arc leads to a higher level.

    Parameters
    ----------
    tail, head
        Nodes of each arc, shape (A,).
    level
        Level of each node, non-decreasing, shape (N,). Node 0 is the source, node N - 1 the sink.
    by_head, by_tail
        Arcs sorted by one end; sorted here if not given.
    """

    def __init__(
        self, *, tail: Ints, head: Ints, level: Ints, by_head: Ints | None = None, by_tail: Ints | None = None
    ) -> None:
        self.tail, self.head, self.level = tail, head, level
        self.num_nodes = len(level)
        self.by_head = np.argsort(head, kind="stable") if by_head is None else by_head
        self.by_tail = np.argsort(tail, kind="stable") if by_tail is None else by_tail
        self.from_source_levels = _levels(self.by_head, head, tail, level)
        self.to_sink_levels = _levels(self.by_tail, tail, head, level)[::-1]

    def restricted(self, chosen: Bools) -> "LayeredGraph":
        """The graph of the chosen arcs and the nodes that they touch, numbered anew."""
        touched = np.zeros(self.num_nodes, dtype=bool)
        touched[self.tail[chosen]] = touched[self.head[chosen]] = True
        touched[0] = touched[-1] = True
        number = np.cumsum(touched, dtype=self.tail.dtype) - 1
        arc_number = np.cumsum(chosen) - 1
        return LayeredGraph(
            tail=number[self.tail[chosen]],
            head=number[self.head[chosen]],
            level=self.level[touched],
            by_head=arc_number[self.by_head[chosen[self.by_head]]],
            by_tail=arc_number[self.by_tail[chosen[self.by_tail]]],
        )

    def from_source(self, cost: Floats) -> Floats:
        """Length of a shortest path from the source to every node, infinite if there is none; shape (N,)."""
        return self._labels(cost, self.from_source_levels, start=0)

    def from_restarts(self, cost: Floats, extra: Floats, restarts: Bools, to: Floats) -> Floats:
        """Least length to every node if `extra` counts since the last restart only; `to` is without it; shape (N,)."""
        fresh = np.where(restarts, to[self.tail] + cost, np.inf)
        return self._labels(np.where(restarts, np.inf, cost + extra), self.from_source_levels, start=0, also=fresh)

    def to_sink(self, cost: Floats) -> Floats:
        """Length of a shortest path from every node to the sink, infinite if there is none; shape (N,)."""
        return self._labels(cost, self.to_sink_levels, start=self.num_nodes - 1)

    def through(self, cost: Floats) -> Floats:
        """Length of a shortest source-sink path that uses each arc; shape (A,)."""
        return self.from_source(cost)[self.tail] + cost + self.to_sink(cost)[self.head]

    def shortest_path(self, cost: Floats) -> Ints:
        """Arcs of a shortest path from source to sink, in order; empty if there is none."""
        to_sink = self.to_sink(cost)
        if not np.isfinite(to_sink[0]):
            return np.empty(0, dtype=np.int64)
        sorted_tails = self.tail[self.by_tail]
        path, node = [], 0
        while node != self.num_nodes - 1:
            first, last = np.searchsorted(sorted_tails, [node, node + 1])
            arcs = self.by_tail[first:last]
            arc = arcs[np.argmin(cost[arcs] + to_sink[self.head[arcs]])]
            path.append(arc)
            node = int(self.head[arc])
        return np.array(path, dtype=np.int64)

    def _labels(self, cost: Floats, levels: list[ArcLevel], *, start: int, also: Floats | None = None) -> Floats:
        labels = np.full(self.num_nodes, np.inf)
        labels[start] = 0.0
        for level in levels:
            lengths = cost[level.arcs] + labels[level.others]
            if also is not None:
                lengths = np.minimum(lengths, also[level.arcs])
            labels[level.nodes] = np.minimum.reduceat(lengths, level.begins)
        return labels


def _levels(order: Ints, near: Ints, far: Ints, level: Ints) -> list[ArcLevel]:
    """The levels of the near ends in ascending order; `order` sorts the arcs by near end."""
    nodes = near[order]
    firsts = np.flatnonzero(np.concatenate(([True], nodes[1:] != nodes[:-1]))) if len(nodes) else nodes
    node_levels = level[nodes[firsts]]
    # Each level is a range of the distinct nodes, and of the arcs in order.
    cuts = [0, *(np.flatnonzero(node_levels[1:] != node_levels[:-1]) + 1).tolist(), len(firsts)]
    bounds = np.append(firsts, len(nodes))
    others = far[order]
    return [
        ArcLevel(
            arcs=order[bounds[low] : bounds[high]],
            others=others[bounds[low] : bounds[high]],
            begins=firsts[low:high] - bounds[low],
            nodes=nodes[firsts[low:high]],
        )
        for low, high in itertools.pairwise(cuts)
        if low < high
    ]
