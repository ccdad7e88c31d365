"""Cheapest paths through a stage network that open no more hosts than there are.

Labels live on (node, hosts opened so far per class): exact, and exponential in the number of classes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.network.stage_network import StageNetwork

MAX_LABELS = 10_000_000
LABEL_BYTES, OPENING_BYTES, SWEEP_BYTES = 48, 8, 64
"""Held for each count state and node, arc that opens hosts, and arc of the widest level: six lengths, two states,
and what a level is worked out from."""

States = NDArray[np.int32]
"""Numbers of count states: there may be many of them for each arc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What arcs cost, and how long a path may be where it takes an arc; each of shape (A,).

    Two lengths are kept per path, the round trip and the forward part, and its largest *loop*; each
    label holds the least of either, which need not be the same path's. The *way on* from an arc is
    the least round trip from its tail to the sink over usable arcs and the hosts left.
    """

    round_trip: Floats
    forward: Floats
    latest_round_trip: Floats
    """Largest round trip before the arc at which the arc may still be taken."""
    latest_forward: Floats
    """The same for the forward part."""
    latest_end: Floats
    """Largest round trip before the arc plus way on."""
    latest_drain: Floats
    """Largest forward part before the arc plus way on."""
    loop: Floats
    """With the way on from the arc, its loop; minus infinity for none."""
    latest_turn: Floats
    """Largest round trip before the arc plus largest loop up to it."""
    latest_late: Floats
    """Largest forward part before the arc plus largest loop up to it."""
    line: "Line | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A third length: the forward part, and what stands in line since the last restart; each of shape (A,)."""

    queued: Floats
    restarts: Bools
    latest_busy: Floats
    """Largest length before the arc at which it may still be taken."""
    latest_drain: Floats
    """Largest length before the arc plus way on."""
    latest_late: Floats
    """Largest length before the arc plus largest loop up to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """Arcs at the nodes of one level, grouped by node."""

    arcs: Ints
    begins: Ints
    nodes: Ints
    """The grouped ends: heads on the way from the source, tails on the way to the sink."""
    others: Ints
    """The other end of each arc."""
    states: States | None
    """Count state at the other end for each count state at the grouped one, shape (n, H); None: the same."""


class CountedPaths:
    """Label setting over nodes and opened hosts.

    Count states number the vectors of hosts opened per class in mixed radix, H = prod (N_h + 1);
    H itself stands for a state that cannot be.

    Attributes
    ----------
    possible
        Which arcs the latest sweep found taken in time on some way from source to sink.
    """

    def __init__(self, network: StageNetwork) -> None:
        arcs, graph = network.arcs, network.graph
        self._tail, self._head, self._graph = graph.tail, graph.head, graph
        self._num_nodes = graph.num_nodes
        self._opened_class, self._opened_hosts = arcs.opened_class, arcs.opened_hosts
        self._counts = np.array([server.count + 1 for server in network.cluster.servers])
        self._strides = np.concatenate(([1], np.cumprod(self._counts)[:-1]))
        self._from_source = self._levels(graph.by_head, self._head, self._tail, self._states_before)
        self._to_sink = self._levels(graph.by_tail, self._tail, self._head, self._states_after)[::-1]

    @classmethod
    def fit(cls, network: StageNetwork, *, room_bytes: float = math.inf) -> bool:
        """Whether the labels of a network are few enough, and can be set in the memory there is."""
        return cls.size(network) <= MAX_LABELS and cls.needed_bytes(network) <= room_bytes

    @staticmethod
    def size(network: StageNetwork) -> int:
        """Labels that would be kept: nodes times count states."""
        return network.graph.num_nodes * _num_states(network)

    @staticmethod
    def needed_bytes(network: StageNetwork) -> int:
        """What setting the labels takes, by and large at most."""
        graph, opening = network.graph, int(np.count_nonzero(network.arcs.opened_hosts))
        widest = max(int(np.bincount(graph.level[ends]).max(initial=0)) for ends in (graph.tail, graph.head))
        per_state = LABEL_BYTES * graph.num_nodes + OPENING_BYTES * opening + SWEEP_BYTES * widest
        return per_state * _num_states(network)

    @property
    def num_states(self) -> int:
        """H."""
        return int(np.prod(self._counts))

    def cheapest(self, criteria: Criteria, usable: Bools) -> Ints | None:
        """Arcs of a path of least round trip over usable arcs, each taken in time; None if there is none.

        Where the lengths of a label stem from different paths, the path found may be late for
        some arc; its length is still a lower bound.
        """
        way_on = self._ways_on(criteria, usable)
        round_trip = np.full((self._num_nodes, self.num_states + 1), np.inf)
        forward, loop = np.full_like(round_trip, np.inf), np.full_like(round_trip, np.inf)
        round_trip[0, 0], forward[0, 0], loop[0, 0] = 0.0, 0.0, -np.inf
        in_line = forward if criteria.line is None else forward.copy()
        self.possible = np.zeros(len(usable), dtype=bool)
        for level in self._from_source:
            before, before_forward = _at(level, round_trip), _at(level, forward)
            rest = criteria.round_trip[level.arcs, None] + way_on[self._head[level.arcs], :-1]
            # No way on and no loop make nan, which fmax passes over; the arc is late in any case.
            with np.errstate(invalid="ignore"):
                largest_loop = np.fmax(_at(level, loop), rest + criteria.loop[level.arcs, None])
            late = _is_late(criteria, level.arcs[:, None], before, before_forward, rest, largest_loop)
            late |= ~usable[level.arcs, None]
            if criteria.line is not None:
                waiting = _at(level, in_line)
                late |= _is_late_in_line(criteria.line, level.arcs[:, None], waiting, rest, largest_loop)
                reached = _join_line(criteria, level.arcs[:, None], waiting, before_forward)
                in_line[level.nodes, :-1] = np.minimum.reduceat(np.where(late, np.inf, reached), level.begins, axis=0)
            self.possible[level.arcs] = (~late & np.isfinite(before + rest)).any(axis=1)
            for labels, reached in (
                (round_trip, before + criteria.round_trip[level.arcs, None]),
                (forward, before_forward + criteria.forward[level.arcs, None]),
                (loop, largest_loop),
            ):
                in_time = np.where(late, np.inf, reached)
                labels[level.nodes, :-1] = np.minimum.reduceat(in_time, level.begins, axis=0)
        return self._walk_back(criteria, usable, _Labels(round_trip, forward, loop, in_line, way_on))

    def _ways_on(self, criteria: Criteria, usable: Bools) -> Floats:
        """Least round trip from every node and count state to the sink, shape (nodes, H + 1)."""
        way_on = np.full((self._num_nodes, self.num_states + 1), np.inf)
        way_on[-1, :-1] = 0.0
        length = np.where(usable, criteria.round_trip, np.inf)
        for level in self._to_sink:
            lengths = _at(level, way_on) + length[level.arcs, None]
            way_on[level.nodes, :-1] = np.minimum.reduceat(lengths, level.begins, axis=0)
        return way_on

    def _walk_back(self, criteria: Criteria, usable: Bools, labels: "_Labels") -> Ints | None:
        node, state = self._num_nodes - 1, int(np.argmin(labels.round_trip[-1, :-1]))
        if not np.isfinite(labels.round_trip[node, state]):
            return None
        order = self._graph.by_head
        sorted_heads = self._head[order]
        path = []
        while node != 0:
            first, last = np.searchsorted(sorted_heads, [node, node + 1])
            arcs = order[first:last]
            tails, states = self._tail[arcs], self._states_before(arcs)[:, state]
            before, before_forward = labels.round_trip[tails, states], labels.forward[tails, states]
            rest = criteria.round_trip[arcs] + labels.way_on[node, state]
            largest_loop = np.maximum(labels.loop[tails, states], rest + criteria.loop[arcs])
            late = _is_late(criteria, arcs, before, before_forward, rest, largest_loop) | ~usable[arcs]
            if criteria.line is not None:
                late |= _is_late_in_line(criteria.line, arcs, labels.in_line[tails, states], rest, largest_loop)
            best = int(np.argmin(np.where(late, np.inf, before + criteria.round_trip[arcs])))
            path.append(arcs[best])
            node, state = int(self._tail[arcs[best]]), int(states[best])
        return np.array(path[::-1])

    def _levels(self, order: Ints, near: Ints, far: Ints, states: Callable[[Ints], States]) -> list[_Level]:
        near_levels = self._graph.level[near[order]]
        cuts = np.flatnonzero(np.concatenate(([True], near_levels[1:] != near_levels[:-1])))
        return [self._level(arcs, near, far, states) for arcs in np.split(order, cuts[1:])]

    def _level(self, arcs: Ints, near: Ints, far: Ints, states: Callable[[Ints], States]) -> _Level:
        nodes = near[arcs]
        begins = np.flatnonzero(np.concatenate(([True], nodes[1:] != nodes[:-1])))
        return _Level(
            arcs=arcs,
            begins=begins,
            nodes=nodes[begins],
            others=far[arcs],
            states=states(arcs) if (self._opened_hosts[arcs] > 0).any() else None,
        )

    def _states_before(self, arcs: Ints) -> States:
        """Count state before each arc for every count state after it, shape (n, H)."""
        used, strides, opened = self._used(arcs)
        before = np.where(used >= opened, np.arange(self.num_states) - opened * strides, self.num_states)
        return before.astype(np.int32)

    def _states_after(self, arcs: Ints) -> States:
        """Count state after each arc for every count state before it, shape (n, H)."""
        used, strides, opened = self._used(arcs)
        most = (self._counts - 1)[self._opened_class[arcs]][:, None]
        after = np.where(used + opened <= most, np.arange(self.num_states) + opened * strides, self.num_states)
        return after.astype(np.int32)

    def _used(self, arcs: Ints) -> tuple[Ints, Ints, Ints]:
        """Hosts opened of the arc's class in every count state, the class's stride, hosts the arc opens."""
        classes = self._opened_class[arcs]
        strides = self._strides[classes][:, None]
        used = (np.arange(self.num_states) // strides) % self._counts[classes][:, None]
        return used, strides, self._opened_hosts[arcs][:, None]


def _num_states(network: StageNetwork) -> int:
    return math.prod(server.count + 1 for server in network.cluster.servers)


def _at(level: _Level, labels: Floats) -> Floats:
    """Labels at the other end of each arc, shape (n, H)."""
    if level.states is None:
        return labels[level.others, :-1]
    return labels[level.others[:, None], level.states]


class _Labels(NamedTuple):
    """Labels of a finished sweep, each of shape (nodes, H + 1)."""

    round_trip: Floats
    forward: Floats
    loop: Floats
    in_line: Floats
    way_on: Floats


def _is_late(
    criteria: Criteria, arcs: Ints, before: Floats, before_forward: Floats, rest: Floats, largest_loop: Floats
) -> Bools:
    late: Bools = before > criteria.latest_round_trip[arcs]
    late |= before_forward > criteria.latest_forward[arcs]
    late |= before + rest > criteria.latest_end[arcs]
    late |= before_forward + rest > criteria.latest_drain[arcs]
    late |= before + largest_loop > criteria.latest_turn[arcs]
    late |= before_forward + largest_loop > criteria.latest_late[arcs]
    return late


def _is_late_in_line(line: Line, arcs: Ints, waiting: Floats, rest: Floats, largest_loop: Floats) -> Bools:
    late: Bools = waiting > line.latest_busy[arcs]
    late |= waiting + rest > line.latest_drain[arcs]
    late |= waiting + largest_loop > line.latest_late[arcs]
    return late


def _join_line(criteria: Criteria, arcs: Ints, waiting: Floats, before_forward: Floats) -> Floats:
    """Length after each arc: a restart leaves behind what stood in line."""
    assert criteria.line is not None
    line = criteria.line
    reached: Floats = (
        np.where(line.restarts[arcs], before_forward, waiting + line.queued[arcs]) + criteria.forward[arcs]
    )
    return reached
