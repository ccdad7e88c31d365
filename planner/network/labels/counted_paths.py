"""Cheapest paths through a stage network that open no more hosts than there are.

Labels live on *counted nodes*: (node, hosts opened so far per class). That is exact, and exponential in the number of
classes; but in few count states a plan may be at a node and still be in time, and only these have labels.
"""

import math
from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats
from stagecut.planner.network.labels.arc_terms import TERMS
from stagecut.planner.network.labels.back_and_forth import BackAndForth, Cheapest
from stagecut.planner.network.labels.counted_nodes import Openings, counted_nodes
from stagecut.planner.network.labels.criteria import Criteria
from stagecut.planner.network.labels.lengths import NUM_LIMITED, START
from stagecut.planner.network.labels.sweep import NUM_PARTS
from stagecut.planner.network.stage_network import StageNetwork

MAX_STATES, MAX_REACHED, MAX_LABELS = 300_000_000, 4_000_000, 2_000_000
"""Most counted nodes, most of them that are reached, and most with labels. With 100 and 2 million of the first two, and
no prices of hosts, 8.5 % of gpt2-345m on 200 devices (drawn problem 145) and 6.9 % of mixtral-8x7b on 230 (129) were
open after 60 s in place of 1 % after 25 and 14 s. With twice as many reached 9.0 % of gpt3-175b on 4,096 devices of
three types were open after 150 s in place of 100, and with 10 million labels a question on it took 10 to 30 s."""
STATE_BYTES = 4
"""Memory per node and count state, whether or not a plan may be there."""
DEADLINE_BYTES = 40
"""Memory per node and number of hosts left of one class, with up to four rows of prices."""
REACHED_BYTES = 96
"""And more per counted node that is reached, whether or not there is a way on from it."""
LABEL_BYTES = 8 * (len(START) + NUM_LIMITED + 6) + 20
"""And more per counted node: the lengths of its label, the latest, the ways on, the arc of the least, what it is."""
PARTS_BYTES = NUM_PARTS * (8 * (len(START) + NUM_LIMITED) + 4)
"""And more per counted node if the ways to and from it are in parts."""
SET_BYTES = 8 * len(START) + 17
"""And more per label where counted nodes have several."""


class TooManyLabelsError(Exception):
    """There were too many labels to decide the question."""


class CountedPaths:
    """Label setting over nodes and opened hosts; with `room_bytes`, in no more memory than that.

    With `may_relax`, hosts of as many classes as necessary are not counted where labels are too many otherwise: what is
    ruled out stays so, but the path found may open too many of those. With good `prices` of hosts, shape (rows,
    classes), fewer counted nodes are reached in vain; any that are not negative will do.

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
        prices: Floats | None = None,
    ) -> None:
        self._prices = np.empty((0, len(network.cluster.servers))) if prices is None else prices
        self._network, self._graph, self._arcs = network, network.graph, network.arcs
        self._room_bytes = room_bytes - TERMS.itemsize * len(network.arcs)
        self._spare: list[int] | None = None if may_relax else []  # Classes that need not be counted, the last first.
        self.counted_hosts: tuple[int, ...] = ()
        """Up to how many hosts of each class are counted, of some perhaps none."""
        self._count(tuple(server.count for server in network.cluster.servers))

    def _count(self, hosts: tuple[int, ...]) -> None:
        """Count up to so many hosts of each class, or of fewer classes if that is too much."""
        num_nodes = self._graph.num_nodes
        while not fit(num_nodes, hosts, room_bytes=self._room_bytes):
            hosts = self._fewer(hosts)
        self.counted_hosts, states = hosts, num_states(hosts)
        self._label_room_bytes = room = self._room_bytes - needed_bytes(num_nodes, hosts)
        self._most_reached = int(min(num_nodes * states, MAX_REACHED, room // REACHED_BYTES))
        self._most = int(min(num_nodes * states, MAX_LABELS, room // LABEL_BYTES))
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

    def between(self, criteria: Criteria, usable: Bools) -> BackAndForth | None:
        """The ways from source to sink over usable arcs, each taken in time; None if there are none.

        Raises
        ------
        TooManyLabelsError
            If more than `MAX_LABELS` counted nodes have labels, or more than fit in the memory there is.
        """
        order = self._graph.by_tail
        arcs = self._graph.sorted_arcs._replace(order=order[usable[order]])
        num_nodes = self._graph.num_nodes
        while True:
            nodes = counted_nodes(arcs, self._openings, criteria, self._prices, num_nodes, self._most_reached)
            if nodes is not None and len(nodes.state) <= self._most:
                break
            self._count(self._fewer(self.counted_hosts))
        if not nodes.has_source:
            return None
        return BackAndForth(arcs, self._openings, criteria, nodes)

    def has_room_for_parts(self, ways: BackAndForth) -> bool:
        """Whether the ways to and from counted nodes may be divided."""
        return self._left_by_parts(ways) >= 0

    def room_for_sets(self, ways: BackAndForth) -> int:
        """For how many labels there is room where counted nodes have several."""
        return int(min(MAX_LABELS, max(0.0, self._left_by_parts(ways)) // SET_BYTES))

    def _left_by_parts(self, ways: BackAndForth) -> float:
        """The bytes of room that are left beside parts; negative where there is no room for these."""
        return self._label_room_bytes - ways.num_nodes * (LABEL_BYTES + PARTS_BYTES)

    def cheapest(self, criteria: Criteria, usable: Bools) -> Cheapest | None:
        """What one sweep from the source finds; None if there is no path. Errors as above."""
        ways = self.between(criteria, usable)
        return None if ways is None else ways.from_source()


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
