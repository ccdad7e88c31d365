"""Devices by kind: equal ones are counted, never named; what links between kinds cost at least."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.links import link_between_hosts, link_within_host

Counts = tuple[int, ...]
"""A pattern: how many devices of each kind a virtual worker has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A link that messages queue for, or the equal links of all hosts of a class."""

    server_class: int
    name: str
    """nic-out, nic-in, bridge, or the fabric of an island."""
    num_links: int


class Kinds:
    """The islands of each server class; K of them.

    Where the hosts of two devices are not determined by their kinds, the link between them is the faster one within
    a host or between hosts, and no queue is charged for it, so that costs are lower bounds for every placement.
    """

    def __init__(self, problem: Problem) -> None:
        self.cluster: Cluster = problem.cluster
        self._boundary_bytes = problem.job.micro_batches[0] * problem.model.boundary_bytes()
        self.placements = tuple(
            Placement(server_class=index, island=number)
            for index, server in enumerate(self.cluster.servers)
            for number in range(len(server.islands))
        )

    @property
    def num_kinds(self) -> int:
        """K."""
        return len(self.placements)

    @cached_property
    def counts(self) -> Ints:
        """Devices of each kind in the cluster, shape (K,)."""
        servers = self.cluster.servers
        per_host = [servers[own.server_class].islands[own.island].count for own in self.placements]
        hosts = [servers[own.server_class].count for own in self.placements]
        counts: Ints = np.array(per_host) * np.array(hosts)
        return counts

    @cached_property
    def transfer_s(self) -> Floats:
        """Least seconds of a message over each boundary, one way, shape (K, K, L + 1)."""
        kinds = range(self.num_kinds)
        return np.array([[self._least_transfer_s(a, b) for b in kinds] for a in kinds])

    @cached_property
    def one_queue(self) -> Bools:
        """Whether messages between two kinds in both directions certainly share one link, shape (K, K)."""
        kinds = range(self.num_kinds)
        return np.array([[self._queue_within(a, b) is not None for b in kinds] for a in kinds])

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """Every link that a queue is certain for."""
        found = []
        for index, server in enumerate(self.cluster.servers):
            names = ["nic-out", "nic-in"]
            if server.count == 1:
                names += ["bridge"] if len(server.islands) > 1 else []
                names += [f"fabric-{number}" for number, island in enumerate(server.islands) if island.shared]
            found += [Resource(server_class=index, name=name, num_links=server.count) for name in names]
        return tuple(found)

    def boundary_load_s(self, resource: Resource) -> Floats:
        """Seconds for which a boundary between two kinds occupies a resource, both ways, shape (K, K, L + 1)."""
        load = np.zeros_like(self.transfer_s)
        for a, b in itertools.product(range(self.num_kinds), repeat=2):
            first, second = self.placements[a].server_class, self.placements[b].server_class
            if first != second:
                # Activations one way and gradients the other way: one message out of each host and one into it.
                uses = resource.name.startswith("nic") * ((first, second).count(resource.server_class))
            else:
                uses = 2 * (first == resource.server_class and self._queue_within(a, b) == resource.name)
            load[a, b] = uses * self.transfer_s[a, b]
        return load

    def _single_host(self, kind: int) -> bool:
        return self.cluster.servers[self.placements[kind].server_class].count == 1

    def _queue_within(self, a: int, b: int) -> str | None:
        """The shared link inside the only host of both kinds."""
        first, second = self.placements[a], self.placements[b]
        if first.server_class != second.server_class or not self._single_host(a):
            return None
        if first.island != second.island:
            return "bridge"
        shared = self.cluster.servers[first.server_class].islands[first.island].shared
        return f"fabric-{first.island}" if shared else None

    def _least_transfer_s(self, a: int, b: int) -> Floats:
        first, second = self.placements[a], self.placements[b]
        links = []
        if first.server_class == second.server_class:
            links.append(link_within_host(self.cluster, first.server_class, first.island, second.island))
        if first.server_class != second.server_class or not self._single_host(a):
            links.append(link_between_hosts(self.cluster, (first.server_class, 1), (second.server_class, 1)))
        least: Floats = np.min([link.transfer_s(self._boundary_bytes) for link in links], axis=0)
        return least


class Lattice:
    """All patterns of up to `most` devices, by their number of devices."""

    def __init__(self, counts: Ints, most: int) -> None:
        most = min(most, int(counts.sum()))
        levels: list[list[Counts]] = [[] for _ in range(most + 1)]
        for pattern in _bounded(tuple(counts.tolist()), most):
            levels[sum(pattern)].append(pattern)
        self.levels = [np.array(level, dtype=int).reshape(len(level), len(counts)) for level in levels]
        """Patterns of n devices, shape (., K), in the order of their counts."""
        self._index = [{own: row for row, own in enumerate(level)} for level in levels]

    def without(self, num_devices: int, kind: int) -> tuple[Ints, Ints]:
        """The patterns of a level that have a kind, and those of the level below that lack one device of it."""
        level = self.levels[num_devices]
        rows = np.flatnonzero(level[:, kind] > 0)
        fewer = level[rows].copy()
        fewer[:, kind] -= 1
        below = self._index[num_devices - 1]
        return rows, np.array([below[tuple(own)] for own in fewer.tolist()], dtype=int)

    def row(self, pattern: Counts) -> int:
        """Index of a pattern in its level."""
        return self._index[sum(pattern)][pattern]


def _bounded(counts: Counts, most: int) -> Iterator[Counts]:
    """All patterns of up to `most` devices."""
    if not counts:
        yield ()
        return
    for number in range(min(counts[0], most) + 1):
        for rest in _bounded(counts[1:], most - number):
            yield (number, *rest)
