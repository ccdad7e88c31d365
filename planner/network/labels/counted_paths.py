"""Cheapest paths through a stage network that open no more hosts than there are.

Labels live on (node, hosts opened so far per class): exact, and exponential in the number of classes.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.compiled import compiled, inlined
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.labels.lengths import (
    NUM_SHARED,
    ROUND_TRIP,
    START,
    Criteria,
    Step,
    Turns,
    extend,
    extend_shared,
    set_ways_to_turns,
    terms_of,
    turns_here,
)
from stagecut.planner.network.labels.several import Openings, label_sets, least_path, set_label_sets
from stagecut.planner.network.stage_network import StageNetwork

MAX_LABELS = 10_000_000
STATE_BYTES = 8 * (len(START) + 4) + 4
"""Memory per node and count state, at most: the ways on, the lengths, the arc of the least."""
NOT_REACHED = -1


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
        self._kept: tuple[Floats, Labels] | None = None
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

    def cheapest(self, criteria: Criteria, usable: Bools, *, width: int = 1) -> Cheapest | None:
        """A path of least round trip over usable arcs, each taken in time; None if there is none.

        A node and count state may have `width` labels. Where the lengths of a label stem from different paths, the path
        found may be late for some arc; its length is still a lower bound.
        """
        # First sink to source without limits, for the ways on; then source to sink, leaving out arcs that are late.
        order = self._graph.by_tail
        arcs = self._graph.sorted_arcs._replace(order=order[usable[order]])
        turns = criteria.turns
        ways_on, labels = self._fresh(len(turns.depths), len(START) if len(turns.is_stage) else NUM_SHARED)
        _set_ways_on(arcs, self._openings, criteria, ways_on)
        if ways_on[0, 0, 0] == np.inf:
            return None
        possible = np.zeros(len(usable), dtype=bool)
        thetas = _thetas(turns, ways_on[0, 0, 0])
        if width > 1:
            sets = label_sets(self._graph.num_nodes, self._num_states, width)
            set_label_sets(arcs, self._openings, criteria, ways_on, thetas, sets, possible)
            path = least_path(sets, self._graph.tail)
            return None if path is None else Cheapest(path, possible)
        _set_labels(arcs, self._openings, criteria, ways_on, thetas, labels, possible)
        path = self._walk_back(labels)
        return None if path is None else Cheapest(path, possible)

    def _fresh(self, num_turns: int, num_lengths: int) -> tuple[Floats, Labels]:
        """Ways on and labels of nothing yet, in the memory of the last question: to get it anew takes longer."""
        shape = (self._graph.num_nodes, self._num_states)
        if self._kept is None or (len(self._kept[0]), self._kept[1].lengths.shape[2]) != (num_turns, num_lengths):
            labels = Labels(np.empty((*shape, num_lengths)), np.empty(shape, dtype=np.int32))
            self._kept = np.empty((num_turns, *shape)), labels
        ways_on, labels = self._kept
        ways_on.fill(np.inf)
        labels.arc.fill(NOT_REACHED)
        return ways_on, labels

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


def _thetas(turns: Turns, total_s: float) -> Floats:
    """Times per micro-batch that loops take in plans at the limit, by warm-up depth of the first stage of a window.

    With the least round trip and, for the way on from that stage, its share of it, the loops that begin there have
    T - total - way on for their M - k - 1 micro-batches.
    """
    depth = np.arange(turns.largest_depth.max(initial=0) + 1)
    left_s = turns.limit - total_s * (1 + depth / max(1, depth[-1]))
    thetas: Floats = np.maximum.accumulate(left_s / np.maximum(1, turns.num_microbatches - depth - 1))
    return thetas


def num_states(network: StageNetwork) -> int:
    """Number of count states, H."""
    return math.prod(server.count + 1 for server in network.cluster.servers)


@compiled
def _set_ways_on(arcs: SortedArcs, openings: Openings, criteria: Criteria, ways_on: Floats) -> None:
    """Least round trip from every node and count state to the sink, and to the stages of the other depths."""
    ways_on[0, -1] = 0.0
    num_turns, _, num_states = ways_on.shape
    for arc in arcs.order[::-1]:
        tail, head, length = arcs.tail[arc], arcs.head[arc], criteria.round_trip[arc]
        hosts, step = openings.hosts[arc], openings.steps[arc]
        left, known = openings.left[openings.server_class[arc]], ways_on[0, head]
        terms = terms_of(criteria, arc)
        for turn in range(num_turns):
            ends = turn > 0 and turns_here(terms, criteria.turns.depths[turn])
            here, there = ways_on[turn, tail], ways_on[turn, head]
            for state in range(num_states - step):
                further = 0.0 if ends and known[state + step] < np.inf else there[state + step]
                here[state] = min(here[state], further + length if left[state] >= hosts else np.inf)


@compiled
def _set_labels(
    arcs: SortedArcs,
    openings: Openings,
    criteria: Criteria,
    ways_on: Floats,
    thetas: Floats,
    labels: Labels,
    possible: Bools,
) -> None:
    """Labels of all paths in time, and the arcs that are taken in time on a way to the sink."""
    way_on, lengths, after = ways_on[0], labels.lengths, START.copy()
    full, depths, ways = lengths.shape[2] > NUM_SHARED, criteria.turns.depths, np.zeros(len(ways_on))
    lengths[0, 0] = START[: lengths.shape[2]]
    labels.arc[0, 0] = 0
    node, states, num_states = -1, np.empty(way_on.shape[1], np.int64), 0
    for arc in arcs.order:
        if arcs.tail[arc] != node:
            node = arcs.tail[arc]
            num_states = _reached(labels.arc, way_on, node, states)
        head, hosts, step = arcs.head[arc], openings.hosts[arc], openings.steps[arc]
        left, terms = openings.left[openings.server_class[arc]], terms_of(criteria, arc)
        for state in states[:num_states]:
            rest = way_on[head, state + step] if left[state] >= hosts else np.inf
            if rest == np.inf:
                continue
            label = Step(node, state, head, state + step)
            if full:
                set_ways_to_turns(terms, label, ways_on, depths, ways)
                in_time = extend(terms, label, lengths, rest, ways, depths, thetas, after)
            else:
                in_time = extend_shared(terms, label, lengths, rest, after)
            if in_time:
                possible[arc] = True
                _lower(labels.arc, lengths, label, arc, after)


@inlined
def _reached(last_arc: NDArray[np.int32], way_on: Floats, node: int, states: Ints) -> int:
    """Set the count states that a path from source to sink may have at a node; how many they are."""
    num_states = 0
    for state in range(len(states)):
        if last_arc[node, state] != NOT_REACHED and way_on[node, state] < np.inf:
            states[num_states] = state
            num_states += 1
    return num_states


@inlined
def _lower(last_arc: NDArray[np.int32], lengths: Floats, label: Step, arc: int, after: Floats) -> None:
    """Lower the lengths of a label. Of several arcs with the least round trip it keeps the first number."""
    head, state = label.head, label.state_after
    if last_arc[head, state] == NOT_REACHED:
        for which in range(lengths.shape[2]):
            lengths[head, state, which] = np.inf
    if (after[ROUND_TRIP], arc) < (lengths[head, state, ROUND_TRIP], last_arc[head, state]):
        last_arc[head, state] = arc
    for which in range(lengths.shape[2]):
        lengths[head, state, which] = min(lengths[head, state, which], after[which])
