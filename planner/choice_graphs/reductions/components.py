"""A graph split into parts that share neither edges nor moments that can overflow."""

from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.moments import Moments, find_moments
from stagecut.planner.core.numerics.arrays import Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Component:
    """A part of a graph, as a graph: its nodes, then nodes with one option for what others use meanwhile."""

    graph: ChoiceGraph
    nodes: Ints
    """Which node of the whole graph each is."""

    @property
    def key(self) -> bytes:
        """Equal for parts that are equal up to the names of nodes and moments: one solution serves them all."""
        graph = self.graph
        arrays = (graph.first_option, graph.cost, graph.usage, graph.start, graph.stop, graph.ends, graph.pair_cost)
        return b"".join(len(each).to_bytes(8) + each.tobytes() for each in arrays)


def split(graph: ChoiceGraph) -> list[Component]:
    """The parts, in the order of their first nodes; the union of legal choices of all parts is legal, and vice versa.

    Proof: parts share no edge, so costs add up. A moment that can overflow has all its members in one part; others
    alive at it use the same with every option, which the nodes added to the part stand for.
    """
    moments = find_moments(graph)
    part = _parts(graph, moments)
    order = np.argsort(part, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(part[order])) + 1) if len(part) else []
    edges_by_part = np.argsort(part[graph.ends[:, 0]], kind="stable")
    edge_parts = part[graph.ends[edges_by_part, 0]]
    found = []
    for nodes in parts:
        number = part[nodes[0]]
        edges = edges_by_part[slice(*np.searchsorted(edge_parts, [number, number + 1]))]
        found.append(Component(graph=_part(graph, moments, nodes, np.sort(edges)), nodes=nodes))
    return sorted(found, key=lambda each: int(each.nodes[0]))


def _parts(graph: ChoiceGraph, moments: Moments) -> Ints:
    """(nodes,): the least node of the part of each."""
    root = list(range(graph.num_nodes))

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    def join(u: int, v: int) -> None:
        u, v = find(u), find(v)
        root[max(u, v)] = min(u, v)

    for u, v in graph.ends.tolist():
        join(u, v)
    end, before = 0, None
    for node in np.argsort(moments.begin, kind="stable").tolist():
        if moments.begin[node] < moments.end[node]:
            if before is not None and moments.begin[node] < end:
                join(before, node)
            end, before = max(end, int(moments.end[node])), node
    return np.array([find(node) for node in range(graph.num_nodes)], dtype=np.int64)


def _part(graph: ChoiceGraph, moments: Moments, nodes: Ints, edges: Ints) -> ChoiceGraph:
    """Time of a part counts the moments that can overflow, from its first one; slack nodes are never alive."""
    place = np.full(graph.num_nodes, -1)
    place[nodes] = np.arange(len(nodes))
    begin, end = moments.begin[nodes], moments.end[nodes]
    alive = begin < end
    first, last = (int(begin[alive].min()), int(end[alive].max())) if alive.any() else (0, 0)
    start, stop = np.where(alive, begin - first, 0), np.where(alive, end - first, 0)
    change = np.zeros(last - first + 1, dtype=np.int64)
    np.add.at(change, start, np.where(alive, moments.least_usage[nodes], 0))
    np.subtract.at(change, stop, np.where(alive, moments.least_usage[nodes], 0))
    others = graph.usage_limit - moments.room[first:last] - np.cumsum(change)[:-1]
    part = ChoiceGraph(
        name=graph.name,
        first_option=_offsets(graph.num_options[nodes]),
        cost=_rows(graph.cost, graph.first_option, nodes),
        usage=_rows(graph.usage, graph.first_option, nodes),
        start=start,
        stop=stop,
        ends=place[graph.ends[edges]].reshape(-1, 2),
        first_pair=_offsets(np.diff(graph.first_pair)[edges]),
        pair_cost=_rows(graph.pair_cost, graph.first_pair, edges),
        usage_limit=graph.usage_limit,
    )
    return _with_others(part, others)


def _with_others(part: ChoiceGraph, usage: Ints) -> ChoiceGraph:
    time = np.arange(len(usage))
    return replace(
        part,
        first_option=np.concatenate((part.first_option, part.first_option[-1] + time + 1)),
        cost=np.concatenate((part.cost, np.zeros_like(usage))),
        usage=np.concatenate((part.usage, usage)),
        start=np.concatenate((part.start, time)),
        stop=np.concatenate((part.stop, time + 1)),
    )


def _offsets(lengths: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(lengths)))


def _rows(values: Ints, first: Ints, rows: Ints) -> Ints:
    """Some rows of a ragged table, joined."""
    lengths = np.diff(first)[rows]
    position = np.arange(lengths.sum()) + np.repeat(first[:-1][rows] - np.cumsum(lengths) + lengths, lengths)
    joined: Ints = values[position]
    return joined
