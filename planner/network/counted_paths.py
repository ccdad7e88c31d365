"""Cheapest paths through a stage network that open no more hosts than there are.

Labels live on (node, hosts opened so far per class): exact, and exponential in the number of classes.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.compiled import compiled
from stagecut.planner.network.allreduce_queues import NO_QUEUES, AllReduceQueues, Lengths, home_of_queue, queue_after
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.stage_network import StageNetwork

MAX_LABELS = 10_000_000
ROUND_TRIP, FORWARD, LOOP, QUEUE, HOME, SLOW_FORWARD, SLOW_BACKWARD, BASE, LEFT, GAIN = range(10)
"""The lengths of a label; with shared rows only the first three."""
import os
THETA = float(os.environ.get("THETA", "0.99"))
START = np.array([0.0, 0.0, -np.inf, 0.0, 0.0, 0.0, 0.0, -np.inf, 0.0, 0.0])
STATE_BYTES = 8 * (len(START) + 4) + 4
"""Memory per node and count state, at most: the ways on, the lengths, the arc of the least."""
NOT_REACHED = -1


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


class Turns(NamedTuple):
    """What turns and loops need of the arcs, shape (A,) unless stated; see :mod:`stagecut.planner.simulator.turns`.

    A *window* is a run of stages whose loops a label follows: with theta, a time per micro-batch, its `BASE` is what
    comes before the loops + m theta, `GAIN` the seconds of one loop less theta for each of its stages, and `LEFT` the
    least such gain of a shorter loop, zero or less, for what does not fill whole loops.
    """

    is_stage: Bools
    forward: Floats
    """F of a stage, c of a transfer."""
    backward: Floats
    """B of a stage, c of a transfer."""
    first_less: Floats
    """F less its first part."""
    first_tail: Floats
    """g of the first stage, zero elsewhere."""
    least_depth: Ints
    largest_depth: Ints
    windows: Bools
    """Stages with room for at least one loop of every window that begins there."""
    latest_fill: Floats
    """T less what a fill row adds to the way before and the way on."""
    depths: Ints
    """Warm-up depths from the last stage on, of the stages where first backwards may turn, shape (turns,)."""
    num_microbatches: int
    limit: float
    """T."""


NO_INTS, NO_FLOATS, NO_BOOLS = np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
NO_TURNS = Turns(
    NO_BOOLS, *(NO_FLOATS,) * 4, NO_INTS, NO_INTS, NO_BOOLS, NO_FLOATS, np.ones(1, np.int64), 0, 0.0
)


class Criteria(NamedTuple):
    """What arcs cost, and how long a path may be where it takes an arc; arrays of shape (A,).

    A label holds the least of each of its lengths, which need not be the same path's. The *way on* from an arc is the
    least round trip from its tail to the sink over usable arcs and the hosts left.
    """

    round_trip: Floats
    forward: Floats
    loop: Floats
    """The loop of an arc is this plus the way on from it; minus infinity for none."""
    round_trip_limits: Limits
    forward_limits: Limits
    queue: QueueCriteria = NO_QUEUE
    turns: Turns = NO_TURNS


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
    """What a sweep from the source finds at each node and count state."""

    lengths: Floats
    """The least of each length, shape (nodes, H, lengths); not set where not reached, which most count states are at
    most nodes."""
    arc: NDArray[np.int32]
    """The arc that the least round trip ends with, or `NOT_REACHED`, shape (nodes, H); of no meaning at the source."""


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
        turns = criteria.turns
        ways_on = np.full((len(turns.depths), *shape), np.inf)
        _set_ways_on(arcs, self._openings, criteria, ways_on)
        num_lengths = len(START) if len(turns.is_stage) else 3
        labels = Labels(np.empty((*shape, num_lengths)), np.full(shape, NOT_REACHED, dtype=np.int32))
        possible = np.zeros(len(usable), dtype=bool)
        # About what a plan at the limit has left for each micro-batch but the first.
        theta = (turns.limit - ways_on[0, 0, 0]) / max(1, turns.num_microbatches - 1)
        _set_labels(arcs, self._openings, criteria, ways_on, theta * THETA, labels, possible)
        path = self._walk_back(labels)
        return None if path is None else Cheapest(path, possible)

    def _walk_back(self, labels: Labels) -> Ints | None:
        """Arcs of the path that the least label at the sink stems from, least before and across them."""
        states = np.flatnonzero(labels.arc[-1] != NOT_REACHED)
        if len(states) == 0:
            return None
        node, state, path = self._graph.num_nodes - 1, states[np.argmin(labels.lengths[-1, states, 0])], []
        while node != 0:
            arc = labels.arc[node, state]
            path.append(arc)
            node, state = self._graph.tail[arc], state - self._openings.steps[arc]
        return np.array(path[::-1], dtype=np.int64)


def num_states(network: StageNetwork) -> int:
    """Number of count states, H."""
    return math.prod(server.count + 1 for server in network.cluster.servers)


@compiled
def _set_ways_on(arcs: SortedArcs, openings: Openings, criteria: Criteria, ways_on: Floats) -> None:
    """Least round trip from every node and count state to the sink, and to the stages of the other depths."""
    ways_on[0, -1] = 0.0
    turns = criteria.turns
    for arc in arcs.order[::-1]:
        tail, head, length = arcs.tail[arc], arcs.head[arc], criteria.round_trip[arc]
        hosts, step = openings.hosts[arc], openings.steps[arc]
        left = openings.left[openings.server_class[arc]]
        for state in range(ways_on.shape[2] - step):
            if left[state] >= hosts and ways_on[0, head, state + step] < np.inf:
                ways_on[0, tail, state] = min(ways_on[0, tail, state], ways_on[0, head, state + step] + length)
                for turn in range(1, len(turns.depths)):
                    further = _way_to_turn(turns, arc, turn, length, ways_on[turn, head, state + step])
                    ways_on[turn, tail, state] = min(ways_on[turn, tail, state], further)


@compiled
def _way_to_turn(turns: Turns, arc: int, turn: int, length: float, way_on: float) -> float:
    """Round trip from an arc to the stage of some depth, which may be its own."""
    may_be = turns.is_stage[arc] and turns.least_depth[arc] <= turns.depths[turn] <= turns.largest_depth[arc]
    return length if may_be else length + way_on


@compiled
def _set_labels(
    arcs: SortedArcs,
    openings: Openings,
    criteria: Criteria,
    ways_on: Floats,
    theta: float,
    labels: Labels,
    possible: Bools,
) -> None:
    """Labels of all paths in time, and the arcs that are taken in time on a way to the sink."""
    turns, way_on = criteria.turns, ways_on[0]
    full = len(turns.is_stage) > 0
    lengths, after = labels.lengths, START.copy()
    lengths[0, 0] = START[: lengths.shape[2]]
    labels.arc[0, 0] = 0
    # The count states at the tail of the latest arc that a path from source to sink may have there.
    node, states, num_states = -1, np.empty(way_on.shape[1], np.int64), 0
    for arc in arcs.order:
        if arcs.tail[arc] != node:
            node, num_states = arcs.tail[arc], 0
            for state in range(len(states)):
                if labels.arc[node, state] != NOT_REACHED and way_on[node, state] < np.inf:
                    states[num_states] = state
                    num_states += 1
        head, hosts, step = arcs.head[arc], openings.hosts[arc], openings.steps[arc]
        left = openings.left[openings.server_class[arc]]
        for state in states[:num_states]:
            if left[state] < hosts or way_on[head, state + step] == np.inf:
                continue
            before, rest = lengths[node, state], criteria.round_trip[arc] + way_on[head, state + step]
            if full:
                if not _extend(criteria, arc, before, ways_on[:, head, state + step], theta, after):
                    continue
            else:
                after[LOOP] = max(before[LOOP], rest + criteria.loop[arc])
                if _is_late(arc, criteria.round_trip_limits, before[ROUND_TRIP], rest, after[LOOP]) or _is_late(
                    arc, criteria.forward_limits, before[FORWARD], rest, after[LOOP]
                ):
                    continue
                after[ROUND_TRIP] = before[ROUND_TRIP] + criteria.round_trip[arc]
                after[FORWARD] = before[FORWARD] + criteria.forward[arc]
            possible[arc] = True
            reached = lengths[head, state + step]
            if labels.arc[head, state + step] == NOT_REACHED:
                reached[:] = np.inf
            # Of several arcs with the least round trip the label keeps the one with the smallest number.
            if (after[ROUND_TRIP], arc) < (reached[ROUND_TRIP], labels.arc[head, state + step]):
                labels.arc[head, state + step] = arc
            for length in range(len(reached)):
                reached[length] = min(reached[length], after[length])


@compiled
def _extend(criteria: Criteria, arc: int, before: Floats, ways_on: Floats, theta: float, after: Floats) -> bool:
    """Set the lengths after an arc from those before it; False if it comes too late."""
    turns, round_trip = criteria.turns, criteria.round_trip[arc]
    rest = round_trip + ways_on[0]
    slow_forward = max(before[SLOW_FORWARD], turns.forward[arc])
    slow_backward = max(before[SLOW_BACKWARD], turns.backward[arc])
    turned, loop, base, left, gain = rest, before[LOOP], before[BASE], before[LEFT], before[GAIN]
    here = -np.inf
    if turns.is_stage[arc]:
        turned = _first_turn(turns, arc, round_trip, ways_on, slow_forward)
        loop = max(loop, turned + criteria.loop[arc])
        gain += turns.forward[arc] + turns.backward[arc] - theta
        if gain >= 0:
            loop = max(loop, base + left + gain)
        left = min(left, gain)
        own = turns.forward[arc] + turns.backward[arc] - theta
        ahead = turned - turns.first_tail[arc] + (turns.num_microbatches - turns.largest_depth[arc] - 1) * theta
        if turns.windows[arc] and ahead + own + min(own, 0.0) > base + gain + left:
            base, left, gain = ahead, min(own, 0.0), own
        here = max(loop, (turns.num_microbatches - 1) * slow_forward - turns.first_less[arc])
        own_turn = turns.forward[arc] + turns.backward[arc] + turns.first_tail[arc]
        last = before[ROUND_TRIP] + here + own_turn + (turns.least_depth[arc] - 1) * slow_backward
        if last > turns.limit or before[HOME] + turned > turns.latest_fill[arc]:
            return False
    else:
        gain += 2 * turns.forward[arc]
    if (
        _is_late(arc, criteria.round_trip_limits, before[HOME], rest, here)
        or _is_late(arc, criteria.forward_limits, before[FORWARD], turned, here)
        or _is_late(arc, criteria.queue.limits, before[QUEUE], turned, here)
    ):
        return False
    queues, known = criteria.queue.lengths, Lengths(before[HOME], before[FORWARD], before[QUEUE])
    after[ROUND_TRIP] = before[ROUND_TRIP] + round_trip
    after[FORWARD] = before[FORWARD] + criteria.forward[arc]
    after[LOOP] = loop
    after[QUEUE] = queue_after(queues, arc, known)
    after[HOME] = max(before[HOME] + round_trip, home_of_queue(queues, arc, known))
    after[SLOW_FORWARD], after[SLOW_BACKWARD] = slow_forward, slow_backward
    after[BASE], after[LEFT], after[GAIN] = base, left, gain
    return True


@compiled
def _first_turn(turns: Turns, arc: int, round_trip: float, ways_on: Floats, slow_s: float) -> float:
    """From the start of the first forward of a stage to the end of its first backward, as if all before it were over."""
    turned = max(
        round_trip + ways_on[0] + (turns.depths[0] - 1) * slow_s, round_trip + (turns.least_depth[arc] - 1) * slow_s
    )
    for turn in range(1, len(turns.depths)):
        if turns.least_depth[arc] >= turns.depths[turn]:
            way = _way_to_turn(turns, arc, turn, round_trip, ways_on[turn])
            turned = max(turned, way + (turns.depths[turn] - 1) * slow_s)
    return turned


@compiled
def _is_late(arc: int, limits: Limits, length: float, way_on: float, loop: float) -> bool:
    return bool(
        length > limits.alone[arc] or length + way_on > limits.with_way_on[arc] or length + loop > limits.with_loop[arc]
    )
