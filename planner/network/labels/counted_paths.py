"""Cheapest paths through a stage network that open no more hosts than there are.

Labels live on *counted nodes*: (node, hosts opened so far per class). That is exact, and exponential in the number of
classes; but in few count states a plan may be at a node and still be in time, and only these have labels.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled, inlined
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
    chosen_by,
    extend,
    extend_shared,
    set_ways_to_turns,
    terms_of,
)
from stagecut.planner.network.labels.several import label_sets, labels_at, set_label_sets, walk_back
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
    """The arc that the path chosen ends with, or `NONE`, shape (C,); of no meaning at the source."""


class Cheapest(NamedTuple):
    """What a sweep over the network found."""

    path: Ints
    """Arcs of the path, in order."""
    possible: Bools
    """Which arcs some way from source to sink takes in time, shape (A,)."""
    round_trip_s: float
    """The least round trip of any path in time; that of the path found may be longer."""
    home_s: float
    """The least way home with its queues; with shared rows only, the round trip."""


class Rival(NamedTuple):
    """A path whose way on to the sink sets the windows: how late paths like it are shows best."""

    depths: Ints
    """Warm-up depths of its stages, the last stage first."""
    ways_s: Floats
    """The round trip from each stage to the sink, in that order."""

    @classmethod
    def of(cls, path: Ints, criteria: Criteria) -> "Rival":
        """Arcs of a path, in order."""
        stages, round_trip = criteria.turns.is_stage[path], criteria.round_trip[path]
        ways_s = np.cumsum(round_trip[::-1])[::-1]
        return cls(criteria.turns.largest_depth[path][stages][::-1], ways_s[stages][::-1])


class CountedPaths:
    """Label setting over nodes and opened hosts; with `room_bytes`, in no more memory than that.

    With `may_relax`, hosts of as many classes as necessary are not counted where labels are too many otherwise: what is
    ruled out stays so, but the path found may open too many of those. `hosts` are those that are counted at first, per
    class; None: all.

    Raises
    ------
    TooManyLabelsError
        If nodes and count states alone are too many, or take more memory.
    """

    def __init__(
        self,
        network: StageNetwork,
        *,
        room_bytes: float = math.inf,
        may_relax: bool = False,
        hosts: tuple[int, ...] | None = None,
    ) -> None:
        self._network, self._graph, self._arcs, self._room_bytes = network, network.graph, network.arcs, room_bytes
        self._spare: list[int] | None = None if may_relax else []  # Classes that need not be counted, the last first.
        self.num_extensions = 0
        """How many labels arcs took further in the last question with one label each."""
        self.counted_hosts: tuple[int, ...] = ()
        """Up to how many hosts of each class are counted."""
        self._count(tuple(server.count for server in network.cluster.servers) if hosts is None else hosts)

    def _count(self, hosts: tuple[int, ...]) -> None:
        """Count up to so many hosts of each class, or of fewer classes if that is too much."""
        num_nodes = self._graph.num_nodes
        while not fit(num_nodes, hosts, room_bytes=self._room_bytes):
            hosts = self._fewer(hosts)
        self.counted_hosts, states = hosts, num_states(hosts)
        room = (self._room_bytes - needed_bytes(num_nodes, hosts)) // LABEL_BYTES
        self._most = int(min(num_nodes * states, MAX_LABELS, room))
        counts = np.array(hosts) + 1
        strides = np.concatenate(([1], np.cumprod(counts)[:-1]))
        opened = np.arange(states) // strides[:, None] % counts[:, None]
        # Opening o hosts of class h moves the digit of h, and so adds o x stride_h to the number of the state.
        opens = np.where(counts[self._arcs.opened_class] > 1, self._arcs.opened_hosts, 0)
        self._openings = Openings(
            server_class=self._arcs.opened_class,
            hosts=opens,
            steps=opens * strides[self._arcs.opened_class],
            left=counts[:, None] - 1 - opened,
        )

    def _fewer(self, hosts: tuple[int, ...]) -> tuple[int, ...]:
        """Leave out the next class."""
        if self._spare is None:
            self._spare = _in_order_of_need(self._network)
        while self._spare:
            if hosts[spare := self._spare.pop()]:
                return tuple(0 if server_class == spare else count for server_class, count in enumerate(hosts))
        raise TooManyLabelsError

    def cheapest(
        self, criteria: Criteria, usable: Bools, *, width: int = 1, rival: Rival | None = None
    ) -> Cheapest | None:
        """A path over usable arcs, each taken in time, that is short by :func:`chosen_by`; None if there is none.

        A counted node may have `width` labels. Where the lengths of a label stem from different paths, the path found
        may be late for some arc; the least lengths are still lower bounds. Any `rival` will do.

        Raises
        ------
        TooManyLabelsError
            If more than `MAX_LABELS` counted nodes have labels, or more than fit in the memory there is.
        """
        order = self._graph.by_tail
        arcs = self._graph.sorted_arcs._replace(order=order[usable[order]])
        num_nodes = self._graph.num_nodes
        while (nodes := counted_nodes(arcs, self._openings, criteria, num_nodes, self._most)) is None:
            self._count(self._fewer(self.counted_hosts))
        if not nodes.has_source:
            return None
        possible = np.zeros(len(usable), dtype=bool)
        thetas = _thetas(criteria, nodes.ways_on[0, 0], rival)
        if width > 1:
            sets = label_sets(len(nodes.state), width)
            set_label_sets(arcs, self._openings, criteria, nodes, thetas, sets, possible)
            ends = labels_at(sets, nodes.at_sink())
            return _cheapest(sets.lengths, ends, possible, lambda end: walk_back(sets, end))
        lengths = np.empty((len(nodes.state), len(START) if len(criteria.turns.is_stage) else NUM_SHARED))
        labels = Labels(lengths, np.full(len(lengths), NONE, dtype=np.int32))
        self.num_extensions = _set_labels(arcs, self._openings, criteria, nodes, thetas, labels, possible)
        ends = nodes.at_sink()
        ends = ends[labels.arc[ends] != NONE]
        return _cheapest(lengths, ends, possible, lambda end: self._walk_back(labels, nodes, end))

    def _walk_back(self, labels: Labels, nodes: CountedNodes, label: int) -> Ints:
        """Arcs of the path that a label stems from, least before and across them."""
        path, state = [], nodes.state[label]
        while label != 0:
            arc = labels.arc[label]
            path.append(arc)
            state -= self._openings.steps[arc]
            label = nodes.number[self._graph.tail[arc], state] - 1
        return np.array(path[::-1], dtype=np.int64)


def _cheapest(lengths: Floats, ends: Ints, possible: Bools, path_to: Callable[[int], Ints]) -> Cheapest | None:
    """The path of the best of some labels at the sink; None if there are none."""
    if len(ends) == 0:
        return None
    homes_s = lengths[ends, chosen_by(lengths.shape[1])]
    best = int(np.argmin(homes_s))
    return Cheapest(path_to(int(ends[best])), possible, float(lengths[ends, ROUND_TRIP].min()), float(homes_s[best]))


def _thetas(criteria: Criteria, total_s: float, rival: Rival | None) -> Floats:
    """Times per micro-batch that loops take in plans at the limit, by warm-up depth of the first stage of a window.

    The loops that begin at a stage have T - total - way on for their M - k - 1 micro-batches, with total and way on of
    the rival; without one, with the least round trip and its share of it.
    """
    turns = criteria.turns
    depth = np.arange(turns.largest_depth.max(initial=0) + 1)
    way_on_s = total_s * depth / max(1, depth[-1])
    if rival is not None:
        total_s = float(rival.ways_s[-1])
        way_on_s = np.interp(depth, rival.depths, rival.ways_s)
    left_s = criteria.limit - total_s - way_on_s
    thetas: Floats = np.maximum.accumulate(left_s / np.maximum(1, turns.num_microbatches - depth - 1))
    return thetas


def num_states(hosts: Sequence[int]) -> int:
    """Number of count states, H, with up to so many hosts of each class."""
    return math.prod(count + 1 for count in hosts)


def needed_bytes(num_nodes: int, hosts: Sequence[int]) -> int:
    """The memory that nodes, with count states and deadlines, take without labels."""
    return num_nodes * (STATE_BYTES * num_states(hosts) + DEADLINE_BYTES * sum(count + 1 for count in hosts))


def fit(num_nodes: int, hosts: Sequence[int], *, room_bytes: float = math.inf) -> bool:
    """Whether nodes and count states are few enough, and fit in the memory there is."""
    return num_nodes * num_states(hosts) <= MAX_STATES and needed_bytes(num_nodes, hosts) <= room_bytes


def _in_order_of_need(network: StageNetwork) -> list[int]:
    """Classes whose hosts are best counted, those that a path could open most too many of in proportion first."""
    arcs = network.arcs

    def excess(server_class: int) -> float:
        opens = np.where(arcs.opened_class == server_class, arcs.opened_hosts, 0)
        return float(-network.graph.from_source(-opens.astype(float))[-1]) / network.cluster.servers[server_class].count

    return sorted(range(len(network.cluster.servers)), key=excess, reverse=True)


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
    """Lower the lengths of a label. Of several arcs with the least length to choose by it keeps the first number."""
    by = chosen_by(lengths.shape[1])
    if last_arc[label] == NONE:
        for which in range(lengths.shape[1]):
            lengths[label, which] = np.inf
    if (after[by], arc) < (lengths[label, by], last_arc[label]):
        last_arc[label] = arc
    for which in range(lengths.shape[1]):
        lengths[label, which] = min(lengths[label, which], after[which])
