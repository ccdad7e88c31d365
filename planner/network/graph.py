"""Shortest paths through a layered directed graph, as array code."""

import itertools
from dataclasses import dataclass

import numpy as np

from planner.cost.plan_costs import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """Arcs grouped by the level and node at one end, in the order in which labels become known."""

    order: Ints
    """Arcs sorted by (level, node) of the labelled end."""
    slices: tuple[tuple[int, int, Ints, Ints], ...]
    """Per level: first and last arc of `order`, where each node's arcs begin, and the nodes."""


class LayeredGraph:
    """A graph whose nodes are numbered level by level; every arc leads to a higher level.

    Parameters
    ----------
    tail, head
        Nodes of each arc, shape (A,).
    level
        Level of each node, non-decreasing, shape (N,). Node 0 is the source, node N - 1 the sink.
    """

    def __init__(self, *, tail: Ints, head: Ints, level: Ints) -> None:
        self.tail, self.head, self.level = tail, head, level
        self.num_nodes = len(level)
        self._forward = _sweep(head, level, ascending=True)
        self._backward = _sweep(tail, level, ascending=False)

    def from_source(self, cost: Floats) -> Floats:
        """Length of a shortest path from the source to every node, infinite if there is none; shape (N,)."""
        return self._labels(cost, self._forward, near=self.tail, start=0)

    def to_sink(self, cost: Floats) -> Floats:
        """Length of a shortest path from every node to the sink, infinite if there is none; shape (N,)."""
        return self._labels(cost, self._backward, near=self.head, start=self.num_nodes - 1)

    def through(self, cost: Floats) -> Floats:
        """Length of a shortest source-sink path that uses each arc; shape (A,)."""
        return self.from_source(cost)[self.tail] + cost + self.to_sink(cost)[self.head]

    def shortest_path(self, cost: Floats) -> Ints:
        """Arcs of a shortest path from source to sink, in order; empty if there is none."""
        to_sink = self.to_sink(cost)
        if not np.isfinite(to_sink[0]):
            return np.empty(0, dtype=np.int64)
        first = np.searchsorted(self.tail[self._by_tail], np.arange(self.num_nodes + 1))
        path, node = [], 0
        while node != self.num_nodes - 1:
            arcs = self._by_tail[first[node] : first[node + 1]]
            arc = arcs[np.argmin(cost[arcs] + to_sink[self.head[arcs]])]
            path.append(arc)
            node = self.head[arc]
        return np.array(path)

    @property
    def _by_tail(self) -> Ints:
        return np.argsort(self.tail, kind="stable")

    def _labels(self, cost: Floats, sweep: _Sweep, *, near: Ints, start: int) -> Floats:
        labels = np.full(self.num_nodes, np.inf)
        labels[start] = 0.0
        ordered_cost, ordered_near = cost[sweep.order], near[sweep.order]
        for first, last, begins, nodes in sweep.slices:
            lengths = ordered_cost[first:last] + labels[ordered_near[first:last]]
            labels[nodes] = np.minimum.reduceat(lengths, begins)
        return labels


def _sweep(far: Ints, level: Ints, *, ascending: bool) -> _Sweep:
    keys = far if ascending else -far
    order = np.argsort(keys, kind="stable")
    nodes = far[order]
    if len(nodes) == 0:
        return _Sweep(order=order, slices=())
    node_begins = np.flatnonzero(np.concatenate(([True], nodes[1:] != nodes[:-1])))
    node_levels = level[nodes[node_begins]]
    level_begins = np.flatnonzero(np.concatenate(([True], node_levels[1:] != node_levels[:-1])))
    bounds = [*level_begins.tolist(), len(node_begins)]
    arc_begins = np.append(node_begins, len(nodes))
    slices = tuple(
        (
            int(arc_begins[low]),
            int(arc_begins[high]),
            node_begins[low:high] - arc_begins[low],
            nodes[node_begins[low:high]],
        )
        for low, high in itertools.pairwise(bounds)
    )
    return _Sweep(order=order, slices=slices)
