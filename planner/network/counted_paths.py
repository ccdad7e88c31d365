"""Cheapest paths through a stage network that open no more hosts than there are.

Labels live on (node, hosts opened so far per class): exact, and exponential in the number of classes.
"""

import math
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.compiled import compiled
from stagecut.planner.network.allreduce_queues import NO_QUEUES, AllReduceQueues, Lengths, home_of_queue, queue_after
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.stage_network import StageNetwork

MAX_LABELS = 10_000_000
STATE_BYTES = 56
"""Memory per node and count state: the way on, five lengths, the arc of the least."""


class Limits(NamedTuple):
    """Largest length of a path before an arc at which the arc may still be taken; each of shape (A,)."""

    alone: Floats
    """Limit of the length itself."""
    with_way_on: Floats
    """Limit of the length plus the way on from the arc."""
    with_loop: Floats
    """Limit of the length plus the largest loop up to the arc."""


class QueueCriteria(NamedTuple):
    """What arcs add to the lengths with queues, and the limits of the queue."""

    lengths: AllReduceQueues
    limits: Limits


NO_QUEUE = QueueCriteria(NO_QUEUES, Limits(np.empty(0), np.empty(0), np.empty(0)))


class Criteria(NamedTuple):
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
    queue: QueueCriteria = NO_QUEUE


class Openings(NamedTuple):
    """How arcs open hosts. Count states number the vectors of hosts opened per class in mixed radix."""

    server_class: Ints
    hosts: Ints
    """Hosts that the arc opens, shape (A,)."""
    steps: Ints
    """By how much the arc moves the number of the count state, shape (A,)."""
    left: Ints
    """Hosts of each class not yet opened in each count state, shape (classes, H)."""


class Labels(NamedTuple):
    """What a sweep from the source finds at each node and count state, arrays of shape (nodes, H)."""

    lengths: Floats
    """Least round trip, forward part, largest loop, queue and way home, shape (nodes, H, 5)."""
    arc: Ints
    """The arc that the least round trip ends with; -1 for none."""


class Cheapest(NamedTuple):
    """What a sweep over the network found."""

    path: Ints
    """Arcs of the path, in order."""
    possible: Bools
    """Which arcs some way from source to sink takes in time, shape (A,)."""


class CountedPaths:
    """Label setting over nodes and opened hosts."""

    def __init__(self, network: StageNetwork) -> None:
        arcs, servers = network.arcs, network.cluster.servers
        self._graph, self._num_states = network.graph, num_states(network)
        counts = np.array([server.count + 1 for server in servers])
        strides = np.concatenate(([1], np.cumprod(counts)[:-1]))
        opened = np.arange(self._num_states) // strides[:, None] % counts[:, None]
        # Opening o hosts of class h moves the digit of h, and so adds o x stride_h to the number of the state.
        self._openings = Openings(
            server_class=arcs.opened_class,
            hosts=arcs.opened_hosts,
            steps=arcs.opened_hosts * strides[arcs.opened_class],
            left=counts[:, None] - 1 - opened,
        )

    @classmethod
    def fit(cls, network: StageNetwork, *, room_bytes: float = math.inf) -> bool:
        """Whether the labels of a network are few enough, and fit in the memory there is."""
        num_labels = network.graph.num_nodes * num_states(network)
        return num_labels <= MAX_LABELS and cls.needed_bytes(network) <= room_bytes

    @staticmethod
    def needed_bytes(network: StageNetwork) -> int:
        """The memory that the labels take."""
        return STATE_BYTES * network.graph.num_nodes * num_states(network)

    def cheapest(self, criteria: Criteria, usable: Bools) -> Cheapest | None:
        """A path of least round trip over usable arcs, each taken in time; None if there is none.

        Where the lengths of a label stem from different paths, the path found may be late for
        some arc; its length is still a lower bound.
        """
        # First sink to source without limits, for the ways on; then source to sink, leaving out arcs that are late.
        order = self._graph.by_tail
        arcs = self._graph.sorted_arcs._replace(order=order[usable[order]])
        shape = (self._graph.num_nodes, self._num_states)
        way_on = np.full(shape, np.inf)
        _set_ways_on(arcs, self._openings, criteria.round_trip, way_on)
        labels = Labels(np.full((*shape, 5), np.inf), np.full(shape, -1))
        possible = np.zeros(len(usable), dtype=bool)
        _set_labels(arcs, self._openings, criteria, way_on, labels, possible)
        path = self._walk_back(labels)
        return Cheapest(path, possible) if len(path) else None

    def _walk_back(self, labels: Labels) -> Ints:
        """Arcs of the path that the least label at the sink stems from, least before and across them; empty if none."""
        node, state = self._graph.num_nodes - 1, int(np.argmin(labels.lengths[-1, :, 0]))
        path = []
        while (arc := int(labels.arc[node, state])) >= 0:
            path.append(arc)
            node, state = self._graph.tail[arc], state - self._openings.steps[arc]
        return np.array(path[::-1], dtype=np.int64)


def num_states(network: StageNetwork) -> int:
    """Number of count states, H."""
    return math.prod(server.count + 1 for server in network.cluster.servers)


@compiled
def _set_ways_on(arcs: SortedArcs, openings: Openings, round_trip: Floats, way_on: Floats) -> None:
    """Least round trip from every node and count state to the sink."""
    way_on[-1] = 0.0
    for arc in arcs.order[::-1]:
        here, there, length = way_on[arcs.tail[arc]], way_on[arcs.head[arc]], round_trip[arc]
        hosts, step = openings.hosts[arc], openings.steps[arc]
        left = openings.left[openings.server_class[arc]]
        for state in range(len(here) - step):
            if left[state] >= hosts:
                here[state] = min(here[state], there[state + step] + length)


@compiled
def _set_labels(
    arcs: SortedArcs, openings: Openings, criteria: Criteria, way_on: Floats, labels: Labels, possible: Bools
) -> None:
    """Labels of all paths in time, and the arcs that are taken in time on a way to the sink."""
    queues = len(criteria.queue.limits.alone) > 0
    lengths = labels.lengths
    lengths[0, 0] = 0.0
    lengths[0, 0, 2] = -np.inf
    # The count states at the tail of the latest arc that a path from source to sink may have there.
    node, states, num_states = -1, np.empty(way_on.shape[1], np.int64), 0
    for arc in arcs.order:
        if arcs.tail[arc] != node:
            node, num_states = arcs.tail[arc], 0
            for state in range(len(states)):
                if lengths[node, state, 0] < np.inf and way_on[node, state] < np.inf:
                    states[num_states] = state
                    num_states += 1
        head, hosts, step = arcs.head[arc], openings.hosts[arc], openings.steps[arc]
        left = openings.left[openings.server_class[arc]]
        for state in states[:num_states]:
            if left[state] < hosts:
                continue
            rest = criteria.round_trip[arc] + way_on[head, state + step]
            round_trip, forward, queue = lengths[node, state, 0], lengths[node, state, 1], lengths[node, state, 3]
            home = lengths[node, state, 4] if queues else round_trip
            loop = max(lengths[node, state, 2], rest + criteria.loop[arc])
            if (
                rest == np.inf
                or _is_late(arc, criteria.round_trip_limits, home, rest, loop)
                or _is_late(arc, criteria.forward_limits, forward, rest, loop)
                or (queues and _is_late(arc, criteria.queue.limits, queue, rest, loop))
            ):
                continue
            possible[arc] = True
            _set_least(labels, head, state + step, arc, round_trip + criteria.round_trip[arc])
            _lower(lengths, head, state + step, 1, forward + criteria.forward[arc])
            _lower(lengths, head, state + step, 2, loop)
            if queues:
                before = Lengths(home, forward, queue)
                home = max(home + criteria.round_trip[arc], home_of_queue(criteria.queue.lengths, arc, before))
                _lower(lengths, head, state + step, 3, queue_after(criteria.queue.lengths, arc, before))
                _lower(lengths, head, state + step, 4, home)


@compiled
def _lower(lengths: Floats, node: int, state: int, which: int, value: float) -> None:
    lengths[node, state, which] = min(lengths[node, state, which], value)


@compiled
def _is_late(arc: int, limits: Limits, length: float, way_on: float, loop: float) -> bool:
    return bool(
        length > limits.alone[arc] or length + way_on > limits.with_way_on[arc] or length + loop > limits.with_loop[arc]
    )


@compiled
def _set_least(labels: Labels, node: int, state: int, arc: int, round_trip: float) -> None:
    """Of several arcs with the least round trip the label keeps the one with the smallest number."""
    least = labels.lengths[node, state, 0]
    if round_trip < least or (round_trip == least and arc < labels.arc[node, state]):
        labels.lengths[node, state, 0] = round_trip
        labels.arc[node, state] = arc
