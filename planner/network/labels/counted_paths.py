"""Cheapest paths through a stage network that open no more hosts than there are.

Labels live on *counted nodes*: (node, hosts opened so far per class). That is exact, and exponential in the number of
classes; but in few count states a plan may be at a node and still be in time, and only these have labels.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Bools
from stagecut.planner.network.labels.back_and_forth import BackAndForth, Cheapest, Rival, thetas_of
from stagecut.planner.network.labels.counted_nodes import NO_CLASS, SEVERAL, Openings, counted_nodes
from stagecut.planner.network.labels.lengths import NUM_LIMITED, START, TERMS, Criteria
from stagecut.planner.network.labels.sweep import Sweep
from stagecut.planner.network.stage_network import StageNetwork

MAX_STATES, MAX_LABELS = 100_000_000, 2_000_000
"""Most counted nodes, and most of them with labels. With 10 million of these a question on gpt3-175b on 4,096 devices
of three types took 10 to 30 s, and 12.8 % were open after 100 s in place of 9.0."""
STATE_BYTES = 4
"""Memory per node and count state, whether or not a plan may be there."""
DEADLINE_BYTES = 16
"""Memory per node and number of hosts left of one class."""
LABEL_BYTES = 8 * (len(START) + NUM_LIMITED + 6) + 20
"""And more per counted node: the lengths of its label, the latest, the ways on, the arc of the least, what it is."""


class TooManyLabelsError(Exception):
    """There were too many labels to decide the question."""


class CountedPaths:
    """Label setting over nodes and opened hosts; with `room_bytes`, in no more memory than that.

    With `may_relax`, hosts of as many classes as necessary are not counted where labels are too many otherwise: what is
    ruled out stays so, but the path found may open too many of those. `classes` says which are counted at first; None:
    all.

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
        classes: tuple[bool, ...] | None = None,
    ) -> None:
        self._network, self._graph, self._arcs, self._room_bytes = network, network.graph, network.arcs, room_bytes
        self._spare: list[int] | None = None if may_relax else []  # Classes that need not be counted, the last first.
        self._beyond = beyond_fewest(network)
        self.counted_classes: tuple[bool, ...] = ()
        """Whether the hosts of each class are counted."""
        self._count((True,) * len(network.cluster.servers) if classes is None else classes)

    def _count(self, classes: tuple[bool, ...]) -> None:
        """Count the hosts of these classes, or of fewer if that is too much."""
        num_nodes = self._graph.num_nodes
        while not fit(num_nodes, hosts := self._hosts(classes), room_bytes=self._room_bytes):
            classes = self._fewer(classes)
        self.counted_classes, states = classes, num_states(hosts)
        room = (self._room_bytes - needed_bytes(num_nodes, hosts)) // LABEL_BYTES
        self._most = int(min(num_nodes * states, MAX_LABELS, room))
        counts = np.array(hosts) + 1
        strides = np.concatenate(([1], np.cumprod(counts)[:-1]))
        opened = np.arange(states) // strides[:, None] % counts[:, None]
        opens = np.where(classes, self._beyond.hosts, 0)
        how_many = np.count_nonzero(opens, axis=1)
        self._openings = Openings(
            server_class=np.select([how_many == 1, how_many > 1], [opens.argmax(axis=1), SEVERAL], NO_CLASS),
            hosts=opens,
            # Opening o hosts of class h moves the digit of h, and so adds o x stride_h to the number of the state.
            steps=opens @ strides,
            left=counts[:, None] - 1 - opened,
        )

    def _hosts(self, classes: tuple[bool, ...]) -> list[int]:
        """Up to how many of each class are counted."""
        return [max(0, most) if counted else 0 for counted, most in zip(classes, self._beyond.most, strict=True)]

    def _fewer(self, classes: tuple[bool, ...]) -> tuple[bool, ...]:
        """Leave out the next class."""
        if self._spare is None:
            self._spare = _in_order_of_need(self._network)
        while self._spare:
            if classes[spare := self._spare.pop()]:
                return tuple(counted and server_class != spare for server_class, counted in enumerate(classes))
        raise TooManyLabelsError

    def between(self, criteria: Criteria, usable: Bools, *, rival: Rival | None = None) -> BackAndForth | None:
        """The ways from source to sink over usable arcs, each taken in time; None if there are none.

        The first labels follow the windows of a rival; any will do.

        Raises
        ------
        TooManyLabelsError
            If more than `MAX_LABELS` counted nodes have labels, or more than fit in the memory there is.
        """
        if min(self._beyond.most) < 0:
            return None
        order = self._graph.by_tail
        arcs = self._graph.sorted_arcs._replace(order=order[usable[order]])
        num_nodes = self._graph.num_nodes
        while (nodes := counted_nodes(arcs, self._openings, criteria, num_nodes, self._most)) is None:
            self._count(self._fewer(self.counted_classes))
        if not nodes.has_source:
            return None
        thetas = thetas_of(criteria, nodes, rival)
        return BackAndForth(Sweep(arcs, self._openings, criteria, nodes, thetas, np.zeros(1, TERMS)))

    def cheapest(self, criteria: Criteria, usable: Bools) -> Cheapest | None:
        """What one sweep from the source finds; None if there is no path. Errors as above."""
        ways = self.between(criteria, usable)
        return None if ways is None else ways.from_source()


class Beyond(NamedTuple):
    """Hosts that paths open beyond some that every path to the same node opens.

    With n(v) those, an arc from u to v that opens o hosts opens o + n(u) - n(v) >= 0 of these, so a path to v opens
    what it opens less n(v). Where few ways are left, such counts are small.
    """

    hosts: NDArray[np.int32]
    """Of each class that an arc opens, in units of the greatest common divisor of all arcs; shape (A, classes)."""
    most: tuple[int, ...]
    """Of each class that a path may open; negative if all open too many."""

    @property
    def num_states(self) -> int:
        """Number of count states."""
        return num_states([max(0, most) for most in self.most])


WORTH_COUNTING_BEYOND = 4
"""Hosts are counted beyond the fewest if that makes so many times fewer count states: arcs then open hosts of several
classes, which takes longer to look up. Always, drawn problem 32 had 266 questions asked in a minute in place of 288;
never, drawn problem 26 had 20,496 count states in place of 421, and their memory alone took a quarter of the time."""


def beyond_fewest(network: StageNetwork) -> Beyond:
    """The hosts that arcs open beyond the fewest, or beyond none if that makes nearly as few count states."""
    beyond, plain = (_beyond(network, are_fewest) for are_fewest in (True, False))
    return beyond if WORTH_COUNTING_BEYOND * beyond.num_states <= plain.num_states else plain


def _beyond(network: StageNetwork, are_fewest: bool) -> Beyond:
    arcs, graph, columns, most = network.arcs, network.graph, [], []
    for server_class, server in enumerate(network.cluster.servers):
        opens = np.where(arcs.opened_class == server_class, arcs.opened_hosts, 0).astype(float)
        fewest = graph.from_source(opens) if are_fewest else np.zeros(graph.num_nodes)
        beyond = (opens + fewest[graph.tail] - fewest[graph.head]).astype(np.int32)
        unit = max(1, int(np.gcd.reduce(beyond)))
        columns.append(beyond // unit)
        most.append(int(min(server.count, -graph.from_source(-opens)[-1]) - fewest[-1]) // unit)
    return Beyond(np.stack(columns, axis=1), tuple(most))


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
