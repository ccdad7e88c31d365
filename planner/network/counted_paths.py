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
from stagecut.planner.network.graph import ArcLevel
from stagecut.planner.network.stage_network import StageNetwork

MAX_LABELS = 10_000_000
LABEL_BYTES, OPENING_BYTES, SWEEP_BYTES = 48, 8, 64
"""Memory per count state and node (six lengths), arc that opens hosts (two states), and arc of the widest level
(temporaries of a sweep)."""

States = NDArray[np.int32]
"""Numbers of count states: there may be many of them for each arc."""


class Limits(NamedTuple):
    """Largest length of a path before an arc at which the arc may still be taken; each of shape (A,)."""

    alone: Floats
    """Limit of the length itself."""
    with_way_on: Floats
    """Limit of the length plus the way on from the arc."""
    with_loop: Floats
    """Limit of the length plus the largest loop up to the arc."""

    def exceeded(self, arcs: Ints, length: Floats, way_on: Floats, loop: Floats) -> Bools:
        """Which of the arcs come too late."""
        late: Bools = length > self.alone[arcs]
        late |= length + way_on > self.with_way_on[arcs]
        late |= length + loop > self.with_loop[arcs]
        return late


class Queue(NamedTuple):
    """A third length: the forward part plus what has queued since the last restart; each of shape (A,)."""

    queued: Floats
    restarts: Bools
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What arcs cost, and how long a path may be where it takes an arc; arrays of shape (A,).

    Two lengths are kept per path, the round trip and the forward part, and its largest *loop*; each
    label holds the least of each, which need not be the same path's. The *way on* from an arc is
    the least round trip from its tail to the sink over usable arcs and the hosts left.
    """

    round_trip: Floats
    forward: Floats
    loop: Floats
    """The loop of an arc is this plus the way on from it; minus infinity for none."""
    round_trip_limits: Limits
    forward_limits: Limits
    queue: Queue | None = None


class Cheapest(NamedTuple):
    """What a sweep over the network found."""

    path: Ints
    """Arcs of the path, in order."""
    possible: Bools
    """Which arcs some way from source to sink takes in time, shape (A,)."""


class _Transitions(NamedTuple):
    """How labels pass a level: its arcs, and the count states at their other ends."""

    level: ArcLevel
    states: States | None
    """Count state at the other end for each count state at the grouped one, shape (n, H); None: the same."""

    def at_other_end(self, labels: Floats) -> Floats:
        """Labels at the other end of each arc, shape (n, H)."""
        if self.states is None:
            return labels[self.level.others, :-1]
        return labels[self.level.others[:, None], self.states]

    def set_least(self, labels: Floats, lengths: Floats) -> None:
        """Set the labels of the nodes to the least over their arcs."""
        labels[self.level.nodes, :-1] = np.minimum.reduceat(lengths, self.level.begins, axis=0)


class _Labels(NamedTuple):
    """Labels of a sweep from the source, each of shape (nodes, H + 1)."""

    round_trip: Floats
    forward: Floats
    loop: Floats
    queued: Floats
    """Forward part plus what is queued; the same array as `forward` if nothing queues."""


class CountedPaths:
    """Label setting over nodes and opened hosts.

    Count states number the vectors of hosts opened per class in mixed radix, H = prod (N_h + 1);
    H itself stands for an impossible state.
    """

    def __init__(self, network: StageNetwork) -> None:
        self._graph = network.graph
        self._opened_class, self._opened_hosts = network.arcs.opened_class, network.arcs.opened_hosts
        self._counts = np.array([server.count + 1 for server in network.cluster.servers])
        self._strides = np.concatenate(([1], np.cumprod(self._counts)[:-1]))
        self._num_states = num_states(network)
        self._from_source = self._transitions(self._graph.from_source_levels, self._states_before)
        self._to_sink = self._transitions(self._graph.to_sink_levels, self._states_after)

    @classmethod
    def fit(cls, network: StageNetwork, *, room_bytes: float = math.inf) -> bool:
        """Whether the labels of a network are few enough, and fit in the memory there is."""
        num_labels = network.graph.num_nodes * num_states(network)
        return num_labels <= MAX_LABELS and cls.needed_bytes(network) <= room_bytes

    @staticmethod
    def needed_bytes(network: StageNetwork) -> int:
        """An estimate, rather too large, of the memory that the labels take."""
        graph, opening = network.graph, int(np.count_nonzero(network.arcs.opened_hosts))
        widest = max(int(np.bincount(graph.level[ends]).max(initial=0)) for ends in (graph.tail, graph.head))
        per_state = LABEL_BYTES * graph.num_nodes + OPENING_BYTES * opening + SWEEP_BYTES * widest
        return per_state * num_states(network)

    def cheapest(self, criteria: Criteria, usable: Bools) -> Cheapest | None:
        """A path of least round trip over usable arcs, each taken in time; None if there is none.

        Where the lengths of a label stem from different paths, the path found may be late for
        some arc; its length is still a lower bound.
        """
        # First sink to source without limits, for the ways on; then source to sink, leaving out arcs that are late.
        way_on = self._ways_on(criteria, usable)
        round_trip, forward, loop = (np.full_like(way_on, np.inf) for _ in range(3))
        round_trip[0, 0], forward[0, 0], loop[0, 0] = 0.0, 0.0, -np.inf
        queued = forward if criteria.queue is None else forward.copy()
        labels = _Labels(round_trip, forward, loop, queued)
        possible = np.zeros(len(usable), dtype=bool)
        for passing in self._from_source:
            arcs = passing.level.arcs[:, None]
            before_forward = passing.at_other_end(forward)
            before = _Labels(
                round_trip=passing.at_other_end(round_trip),
                forward=before_forward,
                loop=passing.at_other_end(loop),
                queued=before_forward if criteria.queue is None else passing.at_other_end(queued),
            )
            rest = criteria.round_trip[arcs] + way_on[self._graph.head[arcs[:, 0]], :-1]
            largest_loop, late = _loops_and_late(criteria, arcs, before, rest)
            late |= ~usable[arcs]
            # An arc is possible if in some count state it is reached in time and the sink can still be reached from it.
            possible[arcs[:, 0]] = (~late & np.isfinite(before.round_trip + rest)).any(axis=1)
            # A queue label restarts from the forward label before the arc, so it is set from `before` as well.
            if criteria.queue is not None:
                passing.set_least(queued, np.where(late, np.inf, _enqueue(criteria, criteria.queue, arcs, before)))
            passing.set_least(round_trip, np.where(late, np.inf, before.round_trip + criteria.round_trip[arcs]))
            passing.set_least(forward, np.where(late, np.inf, before.forward + criteria.forward[arcs]))
            passing.set_least(loop, np.where(late, np.inf, largest_loop))
        path = self._walk_back(criteria, usable, labels, way_on)
        return None if path is None else Cheapest(path, possible)

    def _ways_on(self, criteria: Criteria, usable: Bools) -> Floats:
        """Least round trip from every node and count state to the sink, shape (nodes, H + 1)."""
        way_on = np.full((self._graph.num_nodes, self._num_states + 1), np.inf)
        way_on[-1, :-1] = 0.0
        length = np.where(usable, criteria.round_trip, np.inf)
        for passing in self._to_sink:
            passing.set_least(way_on, passing.at_other_end(way_on) + length[passing.level.arcs, None])
        return way_on

    def _walk_back(self, criteria: Criteria, usable: Bools, labels: _Labels, way_on: Floats) -> Ints | None:
        """Arcs of the path that the least label at the sink stems from: in time, and least before and across them."""
        node, state = self._graph.num_nodes - 1, int(np.argmin(labels.round_trip[-1, :-1]))
        if not np.isfinite(labels.round_trip[node, state]):
            return None
        order = self._graph.by_head
        sorted_heads = self._graph.head[order]
        path = []
        while node != 0:
            first, last = np.searchsorted(sorted_heads, [node, node + 1])
            arcs = order[first:last]
            tails, states = self._graph.tail[arcs], self._states_before(arcs)[:, state]
            before = _Labels(*(label[tails, states] for label in labels))
            late = (
                _loops_and_late(criteria, arcs, before, criteria.round_trip[arcs] + way_on[node, state])[1]
                | ~usable[arcs]
            )
            best = int(np.argmin(np.where(late, np.inf, before.round_trip + criteria.round_trip[arcs])))
            path.append(arcs[best])
            node, state = int(tails[best]), int(states[best])
        return np.array(path[::-1])

    def _transitions(self, levels: list[ArcLevel], states: Callable[[Ints], States]) -> list[_Transitions]:
        return [
            _Transitions(level, states(level.arcs) if (self._opened_hosts[level.arcs] > 0).any() else None)
            for level in levels
        ]

    def _states_before(self, arcs: Ints) -> States:
        """Count state before each arc for every count state after it, shape (n, H)."""
        # Opening o hosts of class h moves the digit of h, and so adds o x stride_h to the number of the state.
        used, strides, opened = self._used(arcs)
        before = np.where(used >= opened, np.arange(self._num_states) - opened * strides, self._num_states)
        return before.astype(np.int32)

    def _states_after(self, arcs: Ints) -> States:
        """Count state after each arc for every count state before it, shape (n, H)."""
        used, strides, opened = self._used(arcs)
        most = (self._counts - 1)[self._opened_class[arcs]][:, None]
        after = np.where(used + opened <= most, np.arange(self._num_states) + opened * strides, self._num_states)
        return after.astype(np.int32)

    def _used(self, arcs: Ints) -> tuple[Ints, Ints, Ints]:
        """Hosts opened of the arc's class in every count state, the class's stride, hosts the arc opens."""
        classes = self._opened_class[arcs]
        strides = self._strides[classes][:, None]
        used = (np.arange(self._num_states) // strides) % self._counts[classes][:, None]
        return used, strides, self._opened_hosts[arcs][:, None]


def num_states(network: StageNetwork) -> int:
    """Number of count states, H."""
    return math.prod(server.count + 1 for server in network.cluster.servers)


def _loops_and_late(criteria: Criteria, arcs: Ints, before: _Labels, rest: Floats) -> tuple[Floats, Bools]:
    """The largest loop up to and including each arc, and which arcs come too late; `rest` is the way on from them."""
    # No way on and no loop make inf - inf = nan, which fmax passes over; such an arc is late in any case.
    with np.errstate(invalid="ignore"):
        largest_loop = np.fmax(before.loop, rest + criteria.loop[arcs])
    late = criteria.round_trip_limits.exceeded(arcs, before.round_trip, rest, largest_loop)
    late |= criteria.forward_limits.exceeded(arcs, before.forward, rest, largest_loop)
    if criteria.queue is not None:
        late |= criteria.queue.limits.exceeded(arcs, before.queued, rest, largest_loop)
    return largest_loop, late


def _enqueue(criteria: Criteria, queue: Queue, arcs: Ints, before: _Labels) -> Floats:
    """Length after each arc: a restart leaves behind what was queued."""
    waited = np.where(queue.restarts[arcs], before.forward, before.queued + queue.queued[arcs])
    reached: Floats = waited + criteria.forward[arcs]
    return reached
