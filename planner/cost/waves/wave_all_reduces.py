"""Delayed all-reduces between virtual workers: what each costs, and which links it occupies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np

from stagecut.planner.core.cluster import AllReduceTable, Cluster, Link, slowest
from stagecut.planner.core.placement import DeviceGroup
from stagecut.planner.cost.collectives import AllReduce
from stagecut.planner.cost.links import link_between, route_between

Route = tuple[str, ...]
"""Names of the links that a message queues for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveAllReduce:
    """The all-reduce of a wave over a run of layers that one stage of every worker holds: one operation."""

    layers: tuple[int, int]
    """The run [start, stop)."""
    stages: tuple[int, ...]
    """Of each worker, the stage that takes part."""
    seconds: float
    links: Route
    """All of them are occupied for its whole duration."""
    crossing_bytes: float
    """What all members together send to other hosts."""


def wave_all_reduce(
    cluster: Cluster,
    groups: Sequence[DeviceGroup],
    *,
    num_bytes: float,
    layers: tuple[int, int],
    stages: tuple[int, ...],
) -> WaveAllReduce:
    """A ring over single devices: host by host, and island by island, so that each interface is passed once each way.

    Seconds are those of a synchronous all-reduce: as measured inside an island, or 2 (n - 1) steps of bytes / n over
    the slowest link of the ring.
    """
    ring = sorted(groups, key=_place)
    edges = list(pairwise([*ring, ring[0]]))
    routes = [route_between(cluster, *edge) for edge in edges]
    links = _links(cluster, edges, routes)
    exchange = AllReduce(num_ranks=len(ring), link=reduce(slowest, links), measured=_measured(cluster, ring))
    num_crossing = sum(_place(first)[:2] != _place(second)[:2] for first, second in edges)
    return WaveAllReduce(
        layers=layers,
        stages=stages,
        seconds=float(exchange.seconds(np.array([num_bytes]))[0]),
        links=tuple(dict.fromkeys(name for route in routes for name in route)),
        crossing_bytes=num_crossing * 2 * (len(ring) - 1) / len(ring) * num_bytes,
    )


def _links(cluster: Cluster, edges: Sequence[tuple[DeviceGroup, DeviceGroup]], routes: Sequence[Route]) -> list[Link]:
    """The link of each edge, with its part of what all of them pass in a step.

    The transfers of all members of an island pass its shared fabric, on their way to an interface too; a bridge has
    those from one island of its host to another.
    """
    members = Counter(_place(first) for first, _ in edges)
    users = Counter(name for route in routes for name in route)
    found = []
    for (first, second), route in zip(edges, routes, strict=True):
        at_once = members[_place(first)] if _place(first) == _place(second) else max(users[name] for name in route)
        link = link_between(cluster, first, second)
        found.append(link.scaled(over=at_once) if route else link)
    return found


def _measured(cluster: Cluster, ring: Sequence[DeviceGroup]) -> AllReduceTable | None:
    """What was measured among so many devices, where all are on one island."""
    if len(set(map(_place, ring))) > 1:
        return None
    placement = ring[0].placement
    return cluster.servers[placement.server_class].islands[placement.island].all_reduce_among(len(ring))


def _place(group: DeviceGroup) -> tuple[int, int, int]:
    """Server class, host and island."""
    return group.placement.server_class, group.hosts[0], group.placement.island
