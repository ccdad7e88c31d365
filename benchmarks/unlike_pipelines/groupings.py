"""Ways to divide the hosts of a cluster among groups that train beside each other."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stagecut.planner.core.cluster import Cluster

Counts = tuple[int, ...]
"""Hosts of each server class."""
Grouping = tuple[Counts, ...]
"""The hosts of each group, sorted; hosts may stay idle."""
MOST_MIXED = 8
"""Groups with hosts of all classes."""


def groupings(cluster: Cluster) -> tuple[Grouping, ...]:
    """Divisions by class, by host, and into mixed groups as equal as the numbers of hosts allow.

    - Every partition of every set of classes, a group for each part; classes outside the set stay idle.
    - Each host by itself.
    - k groups, over which the hosts of every class are dealt out one by one.

    The whole cluster as one group is left out, and so are equal groups that have it all: alike pipelines.
    """
    hosts = tuple(server.count for server in cluster.servers)
    found = [*_by_class(hosts), _by_host(hosts), *(_dealt(hosts, k) for k in range(2, MOST_MIXED + 1))]
    return tuple(dict.fromkeys(each for each in map(_sorted, found) if not _is_alike(each, hosts)))


def sub_cluster(cluster: Cluster, counts: Counts) -> Cluster:
    """The cluster of these hosts alone."""
    servers = tuple(replace(server, count=n) for server, n in zip(cluster.servers, counts, strict=True) if n > 0)
    names = {server.name for server in servers}
    overrides = tuple(override for override in cluster.overrides if set(override.servers) <= names)
    return replace(cluster, servers=servers, overrides=overrides)


def _by_class(hosts: Counts) -> Iterator[Grouping]:
    """A set partition of each non-empty set of classes: every class joins a part, opens one, or stays idle."""

    def extend(parts: list[list[int]], index: int) -> Iterator[list[list[int]]]:
        if index == len(hosts):
            yield parts
            return
        yield from extend(parts, index + 1)
        yield from extend([*parts, [index]], index + 1)
        for own, part in enumerate(parts):
            yield from extend([*parts[:own], [*part, index], *parts[own + 1 :]], index + 1)

    for parts in extend([], 0):
        if parts:
            yield tuple(tuple(n if index in part else 0 for index, n in enumerate(hosts)) for part in parts)


def _by_host(hosts: Counts) -> Grouping:
    return tuple(
        tuple(int(index == own) for index in range(len(hosts))) for own, n in enumerate(hosts) for _ in range(n)
    )


def _dealt(hosts: Counts, num_groups: int) -> Grouping:
    """Host i of a class goes to group i modulo the number of groups, those of odd classes in reverse order."""

    def number(cls: int, group: int) -> int:
        place = group if cls % 2 == 0 else num_groups - 1 - group
        return len(range(place, hosts[cls], num_groups))

    groups = (tuple(number(cls, group) for cls in range(len(hosts))) for group in range(num_groups))
    return tuple(group for group in groups if any(group))


def _sorted(grouping: Sequence[Counts]) -> Grouping:
    return tuple(sorted(grouping, reverse=True))


def _is_alike(grouping: Grouping, hosts: Counts) -> bool:
    total = tuple(map(sum, zip(*grouping, strict=True)))
    return total == hosts and len(set(grouping)) == 1
