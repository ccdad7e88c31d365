"""How the stages of a pipeline may follow one another on hosts: a graph over counts of hosts taken.

A pipeline is laid out from its last stage to its first. Only the number of hosts taken of every class matters between
hosts, and only the number of devices taken inside a host.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.cluster import Cluster, Link
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.links import link_between_hosts, link_within_host
from stagecut.planner.network.device_groups import placements_in_host, placements_on_whole_hosts

MOST_ORDERS = 24
"""All orders of up to four classes; bounds the time on clusters of more, and changes nothing on 12 problems."""
HostCounts = tuple[int, ...]
"""Hosts taken of every class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedGroup:
    """A device group that a stage may take."""

    placement: Placement
    link: Link
    """To the next stage of the pipeline; out of a host, as if that stage were on another host of the same class."""


IDLE = -1
"""Stands for no device group: the remaining devices of a host or island are left idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationGraph:
    """Nodes 0 .. n - 1 and the arcs between them, in an order in which all arcs into a node precede those out of it.

    Node 0 is the end of the pipeline, where nothing is taken.
    """

    num_devices: Ints
    """Most devices that stages can have taken at each node, shape (n,)."""
    between_hosts: Ints
    """Nodes outside hosts, in order."""
    groups: tuple[LinkedGroup, ...]
    arcs: Ints
    """Tail, head and index of the device group taken by one more stage, or `IDLE`; shape (arcs, 3)."""


def class_orders(cluster: Cluster) -> list[tuple[int, ...]]:
    """Permutations of the server classes, only the first of them where there are too many."""
    return list(itertools.islice(itertools.permutations(range(len(cluster.servers))), MOST_ORDERS))


def counts_in_orders(cluster: Cluster, orders: Iterable[tuple[int, ...]]) -> frozenset[HostCounts]:
    """Counts met when all hosts are taken class by class, the last class of each order first."""
    found = {(0,) * len(cluster.servers)}
    for order in orders:
        counts = [0] * len(cluster.servers)
        for index in reversed(order):
            for _ in range(cluster.servers[index].count):
                counts[index] += 1
                found.add(tuple(counts))
    return frozenset(found)


def all_counts(cluster: Cluster) -> frozenset[HostCounts]:
    """Every number of hosts of every class."""
    return frozenset(itertools.product(*(range(server.count + 1) for server in cluster.servers)))


def allocation_graph(
    problem: Problem, cluster: Cluster, micro_batch: int, *, allowed: frozenset[HostCounts]
) -> AllocationGraph:
    """The graph over the allowed counts of hosts."""
    groups = dict[LinkedGroup, int]()
    hosts = [_Host(problem, cluster, micro_batch, groups, server_class=k) for k in range(len(cluster.servers))]
    nodes = {counts: index for index, counts in enumerate(sorted(allowed, key=lambda counts: (sum(counts), counts)))}
    num_devices, inside, arcs = [0] * len(nodes), list[Ints](), list[Ints]()
    num_nodes = len(nodes)
    for counts, node in nodes.items():
        for index, host in enumerate(hosts):
            heads = {taken: nodes.get(_plus(counts, index, taken)) for taken in host.num_devices}
            for taken, after in heads.items():
                if after is not None:
                    num_devices[after] = max(num_devices[after], num_devices[node] + host.num_devices[taken])
            if heads[1] is not None:
                arcs.append(host.arcs(node, heads[1], num_nodes))
                inside.append(num_devices[node] + host.used)
                num_nodes += len(host.used)
            whole = [(node, heads[taken], group) for taken, group in host.whole if heads[taken] is not None]
            arcs.append(np.array(whole, dtype=np.int64).reshape(-1, 3))
    return AllocationGraph(
        num_devices=np.concatenate((num_devices, *inside)),
        between_hosts=np.arange(len(nodes)),
        groups=tuple(groups),
        arcs=np.concatenate(arcs),
    )


class _Host:
    """The arcs of a host of one class, its islands in any order, and the groups on several such hosts.

    Attributes
    ----------
    num_devices
        Most devices that stages take on one host, and on several by their number.
    used
        Most devices taken at each node inside the host.
    whole
        Number of hosts and device group of stages on several hosts.
    """

    def __init__(
        self,
        problem: Problem,
        cluster: Cluster,
        micro_batch: int,
        groups: dict[LinkedGroup, int],
        *,
        server_class: int,
    ) -> None:
        self._problem, self._cluster, self._micro_batch = problem, cluster, micro_batch
        self._groups, self._class = groups, server_class
        self._nodes, self._arcs = [0, 0], list[tuple[int, int, int]]()  # entering the host, leaving it
        server = cluster.servers[server_class]
        for order in itertools.permutations(range(len(server.islands))):
            self._add(order)
        on_whole = placements_on_whole_hosts(
            problem, cluster, server_class=server_class, most=server.count, micro_batch=micro_batch
        )
        self.whole = [(p.num_hosts, self._group(p, self._link_between_hosts(p.num_hosts))) for p in on_whole]
        self.num_devices = {1: self._nodes[1]} | {hosts: hosts * server.num_devices for hosts, _ in self.whole}
        self.used, self._template = np.array(self._nodes[2:], dtype=np.int64), np.array(self._arcs).reshape(-1, 3)

    def arcs(self, tail: int, head: int, first: int) -> Ints:
        """The arcs of a host between two nodes, with nodes inside numbered from `first`."""
        number = np.concatenate(((tail, head), first + np.arange(len(self.used))))
        arcs = self._template.copy()
        arcs[:, :2] = number[arcs[:, :2]]
        return arcs

    def _add(self, order: tuple[int, ...]) -> None:
        """The stages on one host, one island after another."""
        at, link = 0, self._link_between_hosts(1)
        for island, following in itertools.zip_longest(order, order[1:]):
            left = 1 if following is None else self._node(0)
            self._add_island(at, left, link, island)
            if following is not None:
                self._take(left, 1, 0, IDLE)
                link = link_within_host(self._cluster, self._class, following, island)
            at = left

    def _add_island(self, tail: int, left: int, link: Link, island: int) -> None:
        """The stages on an island, which may be left once some of its devices are taken."""
        devices = self._cluster.servers[self._class].islands[island]
        nodes = [tail, *(self._node(self._nodes[tail] + used) for used in range(1, devices.count + 1))]
        entering, inside = (self._groups_on(island, way) for way in (link, devices.fabric))
        for used, node in enumerate(nodes):
            for size, group in inside if used else entering:
                if used + size <= devices.count:
                    self._take(node, nodes[used + size], size, group)
            if used:
                self._take(node, left, 0, IDLE)

    def _groups_on(self, island: int, link: Link) -> list[tuple[int, int]]:
        """Number of devices and index of every group on an island."""
        placements = placements_in_host(
            self._problem,
            server_class=self._class,
            island=island,
            free=self._cluster.servers[self._class].islands[island].count,
            micro_batch=self._micro_batch,
        )
        return [(p.devices_per_host, self._group(p, link)) for p in placements]

    def _group(self, placement: Placement, link: Link) -> int:
        return self._groups.setdefault(LinkedGroup(placement=placement, link=link), len(self._groups))

    def _node(self, num_devices: int) -> int:
        self._nodes.append(num_devices)
        return len(self._nodes) - 1

    def _take(self, tail: int, head: int, size: int, group: int) -> None:
        self._arcs.append((tail, head, group))
        self._nodes[head] = max(self._nodes[head], self._nodes[tail] + size)

    def _link_between_hosts(self, num_hosts: int) -> Link:
        return link_between_hosts(self._cluster, (self._class, num_hosts), (self._class, num_hosts))


def _plus(counts: HostCounts, index: int, hosts: int) -> HostCounts:
    return (*counts[:index], counts[index] + hosts, *counts[index + 1 :])
