"""How the stages of a pipeline may follow one another on hosts: a graph over counts of hosts taken.

A pipeline is laid out from its last stage to its first. Only the number of hosts taken of every class matters between
hosts, and only the number of devices taken inside a host.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from stagecut.planner.core.cluster import Cluster, Link
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


class Arc(NamedTuple):
    """One more stage, or the remaining devices of a host or island left idle."""

    tail: int
    head: int
    group: int
    """Index of the device group taken; `IDLE` if none."""


IDLE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationGraph:
    """Nodes 0 .. n - 1 and the arcs between them, in an order in which all arcs into a node precede those out of it.

    Node 0 is the end of the pipeline, where nothing is taken.
    """

    num_devices: tuple[int, ...]
    """Most devices that stages can have taken at each node."""
    between_hosts: tuple[int, ...]
    """Nodes outside hosts, in order."""
    groups: tuple[LinkedGroup, ...]
    arcs: tuple[Arc, ...]


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
    builder = _Builder(problem, cluster, micro_batch)
    nodes = {counts: builder.node(0) for counts in sorted(allowed, key=lambda counts: (sum(counts), counts))}
    spanning = partial(placements_on_whole_hosts, problem, cluster, micro_batch=micro_batch)
    whole_hosts = [list(spanning(server_class=k, most=server.count)) for k, server in enumerate(cluster.servers)]
    for counts, node in nodes.items():
        for index, placements in enumerate(whole_hosts):
            after = nodes.get(_plus(counts, index, 1))
            if after is not None:
                builder.add_host(node, after, index)
            for placement in placements:
                after = nodes.get(_plus(counts, index, placement.num_hosts))
                if after is not None:
                    builder.add_whole_hosts(node, after, placement)
    return AllocationGraph(
        num_devices=tuple(builder.num_devices),
        between_hosts=tuple(nodes.values()),
        groups=tuple(builder.groups),
        arcs=tuple(builder.arcs),
    )


class _Builder:
    """Collects nodes, arcs and device groups."""

    def __init__(self, problem: Problem, cluster: Cluster, micro_batch: int) -> None:
        self.num_devices: list[int] = []
        self.arcs: list[Arc] = []
        self.groups: dict[LinkedGroup, int] = {}
        self._on_island: dict[tuple[int, int, Link], list[tuple[int, int]]] = {}
        self._problem, self._cluster, self._micro_batch = problem, cluster, micro_batch

    def node(self, num_devices: int) -> int:
        self.num_devices.append(num_devices)
        return len(self.num_devices) - 1

    def add_host(self, tail: int, head: int, server_class: int) -> None:
        """Add the stages on one host, its islands in any order."""
        for order in itertools.permutations(range(len(self._cluster.servers[server_class].islands))):
            at, link = tail, self._link_between_hosts(server_class, 1)
            for island, following in itertools.zip_longest(order, order[1:]):
                left = head if following is None else self.node(0)
                self._add_island(at, left, link, server_class, island)
                if following is not None:
                    self._take(left, head, 0, IDLE)
                    link = link_within_host(self._cluster, server_class, following, island)
                at = left

    def add_whole_hosts(self, tail: int, head: int, placement: Placement) -> None:
        """Add a stage that takes several whole hosts."""
        link = self._link_between_hosts(placement.server_class, placement.num_hosts)
        self._take(tail, head, placement.replicas * placement.tensor_parallel, self._group(placement, link))

    def _add_island(self, tail: int, left: int, link: Link, server_class: int, island: int) -> None:
        """Add the stages on an island, which may be left once some of its devices are taken."""
        devices = self._cluster.servers[server_class].islands[island]
        nodes = [tail, *(self.node(self.num_devices[tail] + used) for used in range(1, devices.count + 1))]
        entering, inside = (self._groups_on(server_class, island, way) for way in (link, devices.fabric))
        for used, node in enumerate(nodes):
            for size, group in inside if used else entering:
                if used + size <= devices.count:
                    self._take(node, nodes[used + size], size, group)
            if used:
                self._take(node, left, 0, IDLE)

    def _groups_on(self, server_class: int, island: int, link: Link) -> list[tuple[int, int]]:
        """Number of devices and index of every group on an island."""
        key = (server_class, island, link)
        if key not in self._on_island:
            free = self._cluster.servers[server_class].islands[island].count
            placements = placements_in_host(
                self._problem, server_class=server_class, island=island, free=free, micro_batch=self._micro_batch
            )
            self._on_island[key] = [(p.devices_per_host, self._group(p, link)) for p in placements]
        return self._on_island[key]

    def _group(self, placement: Placement, link: Link) -> int:
        return self.groups.setdefault(LinkedGroup(placement=placement, link=link), len(self.groups))

    def _take(self, tail: int, head: int, size: int, group: int) -> None:
        self.arcs.append(Arc(tail, head, group))
        self.num_devices[head] = max(self.num_devices[head], self.num_devices[tail] + size)

    def _link_between_hosts(self, server_class: int, num_hosts: int) -> Link:
        return link_between_hosts(self._cluster, (server_class, num_hosts), (server_class, num_hosts))


def _plus(counts: HostCounts, index: int, hosts: int) -> HostCounts:
    return (*counts[:index], counts[index] + hosts, *counts[index + 1 :])
