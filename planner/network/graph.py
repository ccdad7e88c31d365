"""Shortest paths through a layered directed graph: loops over its arcs, sorted by tail, compiled."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled


class SortedArcs(NamedTuple):
    """The arcs of a graph as compiled loops take them.

    One way through `order` is a way from source to sink: every arc into a node comes before all that leave it.
    """

    tail: Ints
    head: Ints
    order: Ints
    """Numbers of the arcs that count, by ascending tail, those of one tail in ascending order."""


class LayeredGraph:
    """A graph whose nodes are numbered level by level; every arc leads to a higher level.

    Parameters
    ----------
    tail, head
        Nodes of each arc, shape (A,).
    level
        Level of each node, non-decreasing, shape (N,). Node 0 is the source, node N - 1 the sink.
    by_tail
        Arcs that count, sorted by tail; by default all of them, sorted here.
    """

    def __init__(self, *, tail: Ints, head: Ints, level: Ints, by_tail: Ints | None = None) -> None:
        self.tail, self.head, self.level = tail, head, level
        self.num_nodes = len(level)
        self.by_tail = np.argsort(tail, kind="stable") if by_tail is None else by_tail
        self.sorted_arcs = SortedArcs(tail, head, self.by_tail)

    def counting(self, by_tail: Ints) -> "LayeredGraph":
        """The same nodes and numbers of arcs, of which only these count: they are sorted by tail."""
        return LayeredGraph(tail=self.tail, head=self.head, level=self.level, by_tail=by_tail)

    def restricted(self, chosen: Bools) -> "LayeredGraph":
        """The graph of the chosen arcs and the nodes that they touch, numbered anew."""
        touched = np.zeros(self.num_nodes, dtype=bool)
        touched[self.tail[chosen]] = touched[self.head[chosen]] = True
        touched[0] = touched[-1] = True
        arc_number, number = np.cumsum(chosen) - 1, np.cumsum(touched) - 1
        return LayeredGraph(
            tail=number[self.tail[chosen]],
            head=number[self.head[chosen]],
            level=self.level[touched],
            by_tail=arc_number[self.by_tail[chosen[self.by_tail]]],
        )

    def on_paths(self, chosen: Bools) -> Bools:
        """Which of the chosen arcs are on a path of chosen arcs from source to sink, shape (A,)."""
        return _on_paths(self.sorted_arcs, chosen, self.num_nodes)

    def from_source(self, cost: Floats) -> Floats:
        """Length of a shortest path from the source to every node, infinite if there is none; shape (N,)."""
        return _from_source(self.sorted_arcs, cost, self.num_nodes)

    def to_sink(self, cost: Floats) -> Floats:
        """Length of a shortest path from every node to the sink, infinite if there is none; shape (N,)."""
        return _to_sink(self.sorted_arcs, cost, self.num_nodes)[0]

    def through(self, cost: Floats) -> Floats:
        """Length of a shortest source-sink path that uses each arc; shape (A,)."""
        return self.from_source(cost)[self.tail] + cost + self.to_sink(cost)[self.head]

    def paths(self) -> Iterator[Ints]:
        """Arcs of every path from source to sink."""
        leaving: dict[int, list[int]] = {}
        for arc in self.by_tail.tolist():
            leaving.setdefault(int(self.tail[arc]), []).append(arc)
        waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        while waiting:
            node, path = waiting.pop()
            if node == self.num_nodes - 1:
                yield np.array(path, dtype=np.int64)
            waiting += [(int(self.head[arc]), (*path, arc)) for arc in leaving.get(node, ())]

    def shortest_path(self, cost: Floats) -> Ints:
        """Arcs of a shortest path from source to sink, in order; empty if there is none."""
        _, next_arc = _to_sink(self.sorted_arcs, cost, self.num_nodes)
        path, node = [], 0
        while (arc := int(next_arc[node])) >= 0:
            path.append(arc)
            node = self.head[arc]
        return np.array(path, dtype=np.int64)


@compiled
def _from_source(arcs: SortedArcs, cost: Floats, num_nodes: int) -> Floats:
    least = np.full(num_nodes, np.inf)
    least[0] = 0.0
    for arc in arcs.order:
        node = arcs.head[arc]
        least[node] = min(least[node], least[arcs.tail[arc]] + cost[arc])
    return least


@compiled
def _to_sink(arcs: SortedArcs, cost: Floats, num_nodes: int) -> tuple[Floats, Ints]:
    """Least lengths, and the first arc of a shortest path from each node: of several, the one first in order."""
    least, next_arc = np.full(num_nodes, np.inf), np.full(num_nodes, -1)
    least[-1] = 0.0
    for arc in arcs.order[::-1]:
        node, length = arcs.tail[arc], least[arcs.head[arc]] + cost[arc]
        if length <= least[node] and length < np.inf:
            least[node], next_arc[node] = length, arc
    return least, next_arc


@compiled
def _on_paths(arcs: SortedArcs, chosen: Bools, num_nodes: int) -> Bools:
    from_source, to_sink = np.zeros(num_nodes, np.bool_), np.zeros(num_nodes, np.bool_)
    from_source[0] = to_sink[-1] = True
    for arc in arcs.order:
        from_source[arcs.head[arc]] |= chosen[arc] & from_source[arcs.tail[arc]]
    kept = np.zeros(len(chosen), np.bool_)
    for arc in arcs.order[::-1]:
        kept[arc] = chosen[arc] & from_source[arcs.tail[arc]] & to_sink[arcs.head[arc]]
        to_sink[arcs.tail[arc]] |= kept[arc]
    return kept
