"""Ways to divide the devices of a cluster among groups that train beside each other."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from stagecut.planner.core.cluster import Cluster, Island, Server

Piece = tuple[int, int]
"""Server class of a host, and how many of its devices."""
Group = tuple[Piece, ...]
"""Hosts of a group, sorted; equal groups have equal hosts."""
Grouping = tuple[Group, ...]
"""All groups; devices may stay idle."""
MOST_MIXED = 8
"""Groups with devices of all classes."""


def groupings(cluster: Cluster) -> tuple[Grouping, ...]:
    """Divisions by class, by host, and into mixed groups as equal as the numbers allow.

    - Every partition of every set of classes, a group for each part; classes outside the set stay idle.
    - Each host by itself.
    - k groups over which the hosts of every class are dealt out, or their devices where there are more groups than
      hosts.

    The whole cluster as one group is left out, and so are equal groups that have it all: alike pipelines.
    """
    found = [*_by_class(cluster), _by_host(cluster), *(_dealt(cluster, k) for k in range(2, MOST_MIXED + 1))]
    return tuple(dict.fromkeys(each for each in found if not _is_alike(cluster, each)))


def pieces_by_host(cluster: Cluster, group: Group) -> dict[str, Piece]:
    """The piece behind each host of :func:`sub_cluster`."""
    part = sub_cluster(cluster, group)
    kinds = sorted(set(group))
    return {host: piece for index, piece in enumerate(kinds) for host in part.host_names(index)}


def sub_cluster(cluster: Cluster, group: Group) -> Cluster:
    """The cluster of these devices alone: part of a host has as large a part of its interface and shared fabric.

    Raises
    ------
    ValueError
        If the cluster has different networks between servers, or a host is divided that has several islands.
    """
    if cluster.overrides:
        raise ValueError("clusters with different networks between servers cannot be divided")
    numbers = Counter(group)
    servers = tuple(
        _part(cluster.servers[index], devices, numbers[index, devices]) for index, devices in sorted(numbers)
    )
    return replace(cluster, servers=servers)


def _part(server: Server, devices: int, count: int) -> Server:
    if devices == server.num_devices:
        return replace(server, count=count)
    (island,) = server.islands
    own: dict[str, int] = {"times": devices, "over": island.count}
    fabric = island.fabric.scaled(**own) if island.shared else island.fabric
    part = Island(device_type=island.device_type, count=devices, fabric=fabric, shared=island.shared)
    return replace(
        server, name=f"{devices} of {server.name}", count=count, islands=(part,), nic=server.nic.scaled(**own)
    )


def _whole(cluster: Cluster, index: int) -> list[Piece]:
    server = cluster.servers[index]
    return [(index, server.num_devices)] * server.count


def _by_class(cluster: Cluster) -> Iterator[Grouping]:
    """A set partition of each non-empty set of classes: every class joins a part, opens one, or stays idle."""

    def extend(parts: list[list[int]], index: int) -> Iterator[list[list[int]]]:
        if index == len(cluster.servers):
            yield parts
            return
        yield from extend(parts, index + 1)
        yield from extend([*parts, [index]], index + 1)
        for own, part in enumerate(parts):
            yield from extend([*parts[:own], [*part, index], *parts[own + 1 :]], index + 1)

    for parts in extend([], 0):
        if parts:
            yield _sorted([[piece for index in part for piece in _whole(cluster, index)] for part in parts])


def _by_host(cluster: Cluster) -> Grouping:
    return _sorted([[piece] for index in range(len(cluster.servers)) for piece in _whole(cluster, index)])


def _dealt(cluster: Cluster, num_groups: int) -> Grouping:
    """Host i of a class goes to group i modulo the number of groups, those of odd classes in reverse order.

    With fewer hosts, group i takes devices of host i modulo the number of hosts, as many as its other groups.
    """
    groups: list[list[Piece]] = [[] for _ in range(num_groups)]
    for index, server in enumerate(cluster.servers):
        order = groups if index % 2 == 0 else groups[::-1]
        if server.count >= num_groups:
            for host in range(server.count):
                order[host % num_groups].append((index, server.num_devices))
            continue
        for host in range(server.count):
            sharing = order[host :: server.count]
            for place, group in enumerate(sharing):
                devices = len(range(place, server.num_devices, len(sharing)))
                if devices:
                    group.append((index, devices))
    return _sorted([group for group in groups if group])


def _sorted(groups: list[list[Piece]]) -> Grouping:
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def _is_alike(cluster: Cluster, grouping: Grouping) -> bool:
    used = sum(devices for group in grouping for _, devices in group)
    return used == cluster.num_devices and len(set(grouping)) == 1
