"""The topological order in which the nodes of a graph form a chain.

A plan may cut the chain anywhere, so the tensors alive should be small throughout the computation.
With t_v the seconds of node v, D_v the nodes before it, and L(D) the bytes of the tensors that nodes of D
make and nodes outside D still use, the order minimises

    sum over v of t_v L(D_v)

over all topological orders: the bytes that a cut would send, averaged over the running time of the model.
If no node takes time, all count the same. Ties go to the order of the file.

The sets D are the states of a dynamic program. A node that takes no time costs nothing wherever it stands:
it runs as soon as it is ready if that leaves no more bytes alive, or, if it needs no bytes, just before its
first user. Neither rule makes any order worse, and both leave few states. The search is exact as long as at
most `width` sets of the same size are open; beyond that, the cheapest are kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from stagecut.planner.chains.task_graph import TaskGraph

MAX_WIDTH, MIN_WIDTH = 512, 8
WORK = 40_000
"""Roughly how many sets are expanded in all; this decides the width for large graphs."""
NodeSet = int
"""A set of nodes: bit v stands for node v."""


def smallest_order(graph: TaskGraph, *, width: int | None = None) -> tuple[int, ...]:
    """Nodes of the graph in the order described above.

    At most `width` sets of the same size are kept, by default more for small graphs.
    """
    problem = _Ordering(graph)
    if width is None:
        width = max(MIN_WIDTH, min(MAX_WIDTH, WORK // len(graph.nodes)))
    return problem.with_late_nodes(problem.search(width))


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """One way to compute a set of nodes."""

    nodes: NodeSet
    cost: float
    alive_bytes: float
    last: tuple[int, ...] = ()
    """Nodes run since the previous state."""
    before: "_State | None" = None


class _Ordering:
    """The graph as bit sets, without late nodes (see :func:`_late_nodes`)."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        seconds = list(graph.seconds)
        self._late = _late_nodes(graph) if any(seconds) else {}
        self._weight = seconds if any(seconds) else [1.0] * len(seconds)
        self._needs = [self._earlier(node) for node in range(len(seconds))]
        self._tensors: list[list[tuple[NodeSet, tuple[NodeSet, ...], float]]] = [[] for _ in seconds]
        for tensor in graph.tensors:
            made, used = self._runs_with(tensor.source), tuple(map(self._runs_with, tensor.users))
            if tensor.num_bytes > 0 and used:
                for node in _members(made | _union(used)):
                    self._tensors[node].append((made, used, tensor.num_bytes))

    def search(self, width: int) -> list[int]:
        """The best order found of all but the late nodes."""
        everything = _union(1 << node for node in range(len(self._needs)) if node not in self._late)
        states = {0: self._closed(_State(nodes=0, cost=0.0, alive_bytes=0.0))}
        states = {state.nodes: state for state in states.values()}
        while set(states) != {everything}:
            smallest = min(nodes.bit_count() for nodes in states)
            level = [state for nodes, state in states.items() if nodes.bit_count() == smallest]
            for state in level:
                del states[state.nodes]
            for state in sorted(level, key=lambda state: state.cost)[:width]:
                for node in self._ready(state.nodes, everything):
                    found = self._closed(self._run(state, node))
                    known = states.get(found.nodes)
                    if known is None or found.cost < known.cost:
                        states[found.nodes] = found
        return _path(states[everything])

    def with_late_nodes(self, order: list[int]) -> tuple[int, ...]:
        """The order with each late node inserted just before its first user."""
        placed: dict[int, None] = {}

        def place(node: int) -> None:
            for before in self._graph.predecessors[node]:
                if before not in placed:
                    place(before)
            placed[node] = None

        for node in order:
            place(node)
        return tuple(placed)

    def _run(self, state: _State, node: int) -> _State:
        return _State(
            nodes=state.nodes | 1 << node,
            cost=state.cost + self._weight[node] * state.alive_bytes,
            alive_bytes=state.alive_bytes + self._change(state.nodes, node),
            last=(node,),
            before=state,
        )

    def _closed(self, state: _State) -> _State:
        """The state after every ready node that takes no time and leaves no more bytes alive has run."""
        nodes, alive_bytes, last = state.nodes, state.alive_bytes, state.last
        waiting = True
        while waiting:
            waiting = False
            for node in self._timeless:
                if not nodes >> node & 1 and self._needs[node] & ~nodes == 0:
                    change = self._change(nodes, node)
                    if change <= 0:
                        nodes, alive_bytes, last, waiting = nodes | 1 << node, alive_bytes + change, (*last, node), True
        return _State(nodes=nodes, cost=state.cost, alive_bytes=alive_bytes, last=last, before=state.before)

    @cached_property
    def _timeless(self) -> list[int]:
        return [node for node, weight in enumerate(self._weight) if weight == 0 and node not in self._late]

    def _ready(self, nodes: NodeSet, everything: NodeSet) -> Iterator[int]:
        for node in _members(everything & ~nodes):
            if self._needs[node] & ~nodes == 0:
                yield node

    def _change(self, nodes: NodeSet, node: int) -> float:
        """Change in the bytes alive as the node runs."""
        after = nodes | 1 << node
        return sum((_alive(tensor, after) - _alive(tensor, nodes)) * tensor[2] for tensor in self._tensors[node])

    def _earlier(self, node: int) -> NodeSet:
        """Nodes that must have run before; a late node stands for what it needs."""
        return _union(
            self._earlier(before) if before in self._late else 1 << before for before in self._graph.predecessors[node]
        )

    def _runs_with(self, node: int) -> NodeSet:
        """A node has run once any of these has: itself, or the users of a late node."""
        if node not in self._late:
            return 1 << node
        return _union(map(self._runs_with, self._graph.successors[node]))


def _late_nodes(graph: TaskGraph) -> dict[int, None]:
    """Nodes that take no time and need neither bytes nor other nodes than such, in topological order."""
    fed = {user for tensor in graph.tensors if tensor.num_bytes > 0 for user in tensor.users}
    candidates = [
        node for node in range(len(graph.nodes)) if graph.is_idle(node) and graph.successors[node] and node not in fed
    ]
    late: dict[int, None] = {}
    found = True
    while found:
        found = False
        for node in candidates:
            if node not in late and all(before in late for before in graph.predecessors[node]):
                late[node] = None
                found = True
    return late


def _alive(tensor: tuple[NodeSet, tuple[NodeSet, ...], float], nodes: NodeSet) -> bool:
    made, used, _ = tensor
    return made & nodes != 0 and any(user & nodes == 0 for user in used)


def _path(state: _State) -> list[int]:
    parts: list[tuple[int, ...]] = []
    while state.before is not None:
        parts.append(state.last)
        state = state.before
    return [node for part in (state.last, *reversed(parts)) for node in part]


def _members(nodes: NodeSet) -> Iterator[int]:
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def _union(sets: Iterable[NodeSet]) -> NodeSet:
    total = 0
    for nodes in sets:
        total |= nodes
    return total
