"""Cheapest paths through a stage network that open no more hosts than there are.

Labels live on *counted nodes*: (node, hosts opened so far per class). That is exact, and exponential in the number of
classes; but in few count states a plan may be at a node and still be in time, and only these have labels.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.compiled import compiled, inlined
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.labels.counted_nodes import (
    NONE,
    CountedNodes,
    Openings,
    after_arc,
    counted_nodes,
)
from stagecut.planner.network.labels.lengths import (
    NUM_SHARED,
    ROUND_TRIP,
    START,
    Criteria,
    Step,
    extend,
    extend_shared,
    set_ways_to_turns,
    terms_of,
)
from stagecut.planner.network.labels.several import label_sets, least_path, set_label_sets
from stagecut.planner.network.stage_network import StageNetwork

MAX_STATES, MAX_LABELS = 100_000_000, 10_000_000
"""Most counted nodes, and most of them with labels."""
STATE_BYTES = 4
"""Memory per node and count state, whether or not a plan may be there."""
DEADLINE_BYTES = 16
"""Memory per node and number of hosts left of one class."""
LABEL_BYTES = 8 * (len(START) + 6) + 20
"""And more per counted node: the lengths of its label, the ways on, the arc of the least, and what it is."""


class TooManyLabelsError(Exception):
    """There were too many labels to decide the question."""


class Labels(NamedTuple):
    """What a sweep from the source finds at each of C counted nodes."""

    lengths: Floats
    """The least of each length, shape (C, lengths); not set where not reached."""
    arc: NDArray[np.int32]
    """The arc that the least round trip ends with, or `NONE`, shape (C,); of no meaning at the source."""


class Cheapest(NamedTuple):
    """What a sweep over the network found."""

    path: Ints
    """Arcs of the path, in order."""
    possible: Bools
    """Which arcs some way from source to sink takes in time, shape (A,)."""


class CountedPaths:
    """Label setting over nodes and opened hosts; with `room_bytes`, in no more memory than that.

    Raises
    ------
    TooManyLabelsError
        If nodes and count states alone are too many, or take more memory.
    """

    def __init__(self, network: StageNetwork, *, room_bytes: float = math.inf) -> None:
        if not self.fit(network, room_bytes=room_bytes):
            raise TooManyLabelsError
        arcs, servers = network.arcs, network.cluster.servers
        self._graph, self._num_states = network.graph, num_states(network)
        room_bytes -= self.needed_bytes(network)
        self._most = int(min(network.graph.num_nodes * self._num_states, MAX_LABELS, room_bytes // LABEL_BYTES))
        self.num_extensions = 0
        """How many labels arcs took further in the last question with one label each."""
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
        """Whether nodes and count states of a network are few enough, and fit in the memory there is."""
        return network.graph.num_nodes * num_states(network) <= MAX_STATES and cls.needed_bytes(network) <= room_bytes

    @staticmethod
    def needed_bytes(network: StageNetwork) -> int:
        """The memory that nodes, with count states and deadlines, take without labels."""
        num_deadlines = sum(server.count + 1 for server in network.cluster.servers)
        per_node = STATE_BYTES * num_states(network) + DEADLINE_BYTES * num_deadlines
        return network.graph.num_nodes * per_node

    def cheapest(
        self, criteria: Criteria, usable: Bools, *, width: int = 1, rival: Ints | None = None
    ) -> Cheapest | None:
        """A path of least round trip over usable arcs, each taken in time; None if there is none.

        A counted node may have `width` labels. Where the lengths of a label stem from different paths, the path found
        may be late for some arc; its length is still a lower bound. Windows are followed so that they show best how
        late paths like the `rival` are.

        Raises
        ------
        TooManyLabelsError
            If more than `MAX_LABELS` counted nodes have labels, or more than fit in the memory there is.
        """
        order = self._graph.by_tail
        arcs = self._graph.sorted_arcs._replace(order=order[usable[order]])
        nodes = counted_nodes(arcs, self._openings, criteria, self._graph.num_nodes, self._most)
        if nodes is None:
            raise TooManyLabelsError
        if not nodes.has_source:
            return None
        possible = np.zeros(len(usable), dtype=bool)
        thetas = _thetas(criteria, nodes.ways_on[0, 0], rival)
        if width > 1:
            sets = label_sets(len(nodes.state), width)
            set_label_sets(arcs, self._openings, criteria, nodes, thetas, sets, possible)
            path = least_path(sets, nodes.at_sink())
            return None if path is None else Cheapest(path, possible)
        lengths = np.empty((len(nodes.state), len(START) if len(criteria.turns.is_stage) else NUM_SHARED))
        labels = Labels(lengths, np.full(len(lengths), NONE, dtype=np.int32))
        self.num_extensions = _set_labels(arcs, self._openings, criteria, nodes, thetas, labels, possible)
        path = self._walk_back(labels, nodes)
        return None if path is None else Cheapest(path, possible)

    def _walk_back(self, labels: Labels, nodes: CountedNodes) -> Ints | None:
        """Arcs of the path that the least label at the sink stems from, least before and across them."""
        ends = nodes.at_sink()
        ends = ends[labels.arc[ends] != NONE]
        if len(ends) == 0:
            return None
        label, path = ends[np.argmin(labels.lengths[ends, ROUND_TRIP])], []
        state = nodes.state[label]
        while label != 0:
            arc = labels.arc[label]
            path.append(arc)
            state -= self._openings.steps[arc]
            label = nodes.number[self._graph.tail[arc], state] - 1
        return np.array(path[::-1], dtype=np.int64)


def _thetas(criteria: Criteria, total_s: float, rival: Ints | None) -> Floats:
    """Times per micro-batch that loops take in plans at the limit, by warm-up depth of the first stage of a window.

    The loops that begin at a stage have T - total - way on for their M - k - 1 micro-batches, with total and way on of
    the rival; without one, with the least round trip and its share of it.
    """
    turns = criteria.turns
    depth = np.arange(turns.largest_depth.max(initial=0) + 1)
    way_on_s = total_s * depth / max(1, depth[-1])
    if rival is not None:
        stages, round_trip = turns.is_stage[rival], criteria.round_trip[rival]
        total_s = float(round_trip.sum())
        ways_s = total_s - np.cumsum(round_trip) + round_trip
        way_on_s = np.interp(depth, turns.largest_depth[rival][stages][::-1], ways_s[stages][::-1])
    left_s = criteria.limit - total_s - way_on_s
    thetas: Floats = np.maximum.accumulate(left_s / np.maximum(1, turns.num_microbatches - depth - 1))
    return thetas


def num_states(network: StageNetwork) -> int:
    """Number of count states, H."""
    return math.prod(server.count + 1 for server in network.cluster.servers)


@compiled
def _set_labels(
    arcs: SortedArcs,
    openings: Openings,
    criteria: Criteria,
    nodes: CountedNodes,
    thetas: Floats,
    labels: Labels,
    possible: Bools,
) -> int:
    """Labels of all paths in time, and the arcs that are taken in time on a way to the sink; how many were tried."""
    lengths, after, depths, ways = labels.lengths, START.copy(), criteria.turns.depths, nodes.ways_on[0].copy()
    full, num_extensions = lengths.shape[1] > NUM_SHARED, 0
    lengths[0] = START[: lengths.shape[1]]
    labels.arc[0] = 0
    for arc in arcs.order:
        terms, node = terms_of(criteria, arc), arcs.tail[arc]
        for here in range(nodes.first[node], nodes.first[node + 1]):
            if labels.arc[here] == NONE:
                continue
            head = after_arc(arcs, openings, nodes.number, arc, nodes.state[here])
            if head == NONE:
                continue
            num_extensions += 1
            label, rest = Step(here, head), nodes.ways_on[head, 0]
            if full:
                set_ways_to_turns(terms, label, nodes.ways_on, depths, ways)
                in_time = extend(terms, label, lengths, rest, ways, depths, thetas, after)
            else:
                in_time = extend_shared(terms, label, lengths, rest, after)
            if in_time:
                possible[arc] = True
                _lower(labels.arc, lengths, head, arc, after)
    return num_extensions


@inlined
def _lower(last_arc: NDArray[np.int32], lengths: Floats, label: int, arc: int, after: Floats) -> None:
    """Lower the lengths of a label. Of several arcs with the least round trip it keeps the first number."""
    if last_arc[label] == NONE:
        for which in range(lengths.shape[1]):
            lengths[label, which] = np.inf
    if (after[ROUND_TRIP], arc) < (lengths[label, ROUND_TRIP], last_arc[label]):
        last_arc[label] = arc
    for which in range(lengths.shape[1]):
        lengths[label, which] = min(lengths[label, which], after[which])
