"""How the stages of a pipeline may follow one another on hosts: steps between counts of hosts taken.

A pipeline is laid out from its last stage to its first. Between hosts only the number of hosts
taken of every class matters; inside a host, the number of devices taken.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from stagecut.planner.core.cluster import Cluster, Link
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.links import link_between_hosts, link_within_host
from stagecut.planner.network.device_groups import placements_in_host, placements_on_hosts

Counts = tuple[int, ...]
"""Hosts taken of every class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """Devices taken for a stage."""

    placement: Placement
    link: Link
    """To the stage that follows in the pipeline; out of a host as if that were on another host of the class."""


class Step(NamedTuple):
    """One more stage, or devices of a host left idle."""

    tail: int
    """Node before it."""
    head: int
    """Node after it."""
    taking: int
    """Index of the devices taken; `IDLE` if the host is left."""


IDLE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSteps:
    """Nodes 0 .. n - 1 and the steps between them, in an order in which every tail is complete.

    Node 0 is the end of the pipeline, where nothing is taken.
    """

    num_devices: tuple[int, ...]
    """Most devices of stages up to each node."""
    between_hosts: tuple[int, ...]
    """Nodes outside of hosts, in order."""
    takings: tuple[Taking, ...]
    steps: tuple[Step, ...]


def chains(cluster: Cluster, orders: Iterable[tuple[int, ...]]) -> frozenset[Counts]:
    """Counts on the way through all hosts, class by class in each of the orders of classes, last one first."""
    found = {(0,) * len(cluster.servers)}
    for order in orders:
        counts = [0] * len(cluster.servers)
        for index in reversed(order):
            for _ in range(cluster.servers[index].count):
                counts[index] += 1
                found.add(tuple(counts))
    return frozenset(found)


def all_counts(cluster: Cluster) -> frozenset[Counts]:
    """Every number of hosts of every class."""
    return frozenset(itertools.product(*(range(server.count + 1) for server in cluster.servers)))


def host_steps(problem: Problem, cluster: Cluster, micro_batch: int, *, allowed: frozenset[Counts]) -> HostSteps:
    """All steps between the allowed counts of hosts."""
    builder = _Builder(problem, cluster, micro_batch)
    nodes = {counts: builder.node(0) for counts in sorted(allowed, key=lambda counts: (sum(counts), counts))}
    for counts, node in nodes.items():
        for index in range(len(cluster.servers)):
            most = max(1, most_whole_hosts(problem, cluster, micro_batch, server_class=index))
            after = [_plus(counts, index, hosts) for hosts in range(1, most + 1)]
            if after[0] in nodes:
                builder.add_host(node, nodes[after[0]], index)
            for num_hosts, head in enumerate(after[1:], start=2):
                if head in nodes:
                    builder.add_whole_hosts(node, nodes[head], index, num_hosts)
    return HostSteps(
        num_devices=tuple(builder.num_devices),
        between_hosts=tuple(nodes.values()),
        takings=tuple(builder.takings),
        steps=tuple(builder.steps),
    )


def most_whole_hosts(problem: Problem, cluster: Cluster, micro_batch: int, *, server_class: int) -> int:
    """Hosts of a class that a stage can take at most: a replica needs a sample."""
    server = cluster.servers[server_class]
    return min(server.count, micro_batch * max(problem.tensor_parallel_degrees) // server.num_devices)


class _Builder:
    """Grows the nodes and steps."""

    def __init__(self, problem: Problem, cluster: Cluster, micro_batch: int) -> None:
        self.num_devices: list[int] = []
        self.steps: list[Step] = []
        self.takings: dict[Taking, int] = {}
        self._groups: dict[tuple[int, int, Link], list[tuple[int, int]]] = {}
        self._problem, self._cluster, self._micro_batch = problem, cluster, micro_batch

    def node(self, num_devices: int) -> int:
        self.num_devices.append(num_devices)
        return len(self.num_devices) - 1

    def add_host(self, tail: int, head: int, server_class: int) -> None:
        """Stages on one host, its islands in any order."""
        link = self._link_between_hosts(server_class, 1)
        for order in itertools.permutations(range(len(self._cluster.servers[server_class].islands))):
            at, link_in = tail, link
            for number, island in enumerate(order):
                last = number == len(order) - 1
                left = head if last else self.node(0)
                self._add_island(at, left, link_in, server_class, island)
                if not last:
                    self._take(left, head, 0, IDLE)
                    link_in = link_within_host(self._cluster, server_class, order[number + 1], island)
                at = left

    def add_whole_hosts(self, tail: int, head: int, server_class: int, num_hosts: int) -> None:
        """One stage on several hosts."""
        link = self._link_between_hosts(server_class, num_hosts)
        for placement in placements_on_hosts(
            self._problem, self._cluster, server_class=server_class, num_hosts=num_hosts, micro_batch=self._micro_batch
        ):
            size = placement.replicas * placement.tensor_parallel
            self._take(tail, head, size, self._taking(placement, link))

    def _add_island(self, tail: int, left: int, link: Link, server_class: int, island: int) -> None:
        """Stages on an island, which is left once some of its devices are taken."""
        group = self._cluster.servers[server_class].islands[island]
        taken = [tail, *(self.node(self.num_devices[tail] + used) for used in range(1, group.count + 1))]
        entering, inside = (self._takings(server_class, island, way) for way in (link, group.fabric))
        for used, node in enumerate(taken):
            for size, taking in inside if used else entering:
                if used + size <= group.count:
                    self._take(node, taken[used + size], size, taking)
            if used:
                self._take(node, left, 0, IDLE)

    def _takings(self, server_class: int, island: int, link: Link) -> list[tuple[int, int]]:
        """Number of devices and taking of every group on an island."""
        key = (server_class, island, link)
        if key not in self._groups:
            free = self._cluster.servers[server_class].islands[island].count
            placements = placements_in_host(
                self._problem, server_class=server_class, island=island, free=free, micro_batch=self._micro_batch
            )
            self._groups[key] = [(p.devices_per_host, self._taking(p, link)) for p in placements]
        return self._groups[key]

    def _taking(self, placement: Placement, link: Link) -> int:
        return self.takings.setdefault(Taking(placement=placement, link=link), len(self.takings))

    def _take(self, tail: int, head: int, size: int, taking: int) -> None:
        self.steps.append(Step(tail, head, taking))
        self.num_devices[head] = max(self.num_devices[head], self.num_devices[tail] + size)

    def _link_between_hosts(self, server_class: int, num_hosts: int) -> Link:
        return link_between_hosts(self._cluster, (server_class, num_hosts), (server_class, num_hosts))


def _plus(counts: Counts, index: int, hosts: int) -> Counts:
    return (*counts[:index], counts[index] + hosts, *counts[index + 1 :])
