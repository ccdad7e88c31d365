"""Seats: placements in the order of the pipeline, and the names of the devices they get."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A placement, on the host of the stage before or on hosts opened for it."""

    placement: Placement
    opens: bool


def seat_stages(cluster: Cluster, seats: Sequence[Seat]) -> list[tuple[str, ...]] | None:
    """Device names of every stage; None where the cluster has not enough hosts or devices.

    Hosts of a class are opened in order and devices of an island are taken in order, so that equal
    sequences get equal names.
    """
    opened = [0] * len(cluster.servers)
    hosts: range = range(0)
    used: dict[int, int] = {}
    names = []
    for seat in seats:
        placement = seat.placement
        server = cluster.servers[placement.server_class]
        if seat.opens:
            first_host = opened[placement.server_class]
            hosts = range(first_host, first_host + placement.num_hosts)
            opened[placement.server_class] = hosts.stop
            used = {}
        first = used.get(placement.island, 0)
        last = first + placement.devices_per_host
        if hosts.stop > server.count or last > server.islands[placement.island].count:
            return None
        used[placement.island] = last
        names.append(_device_names(cluster, placement, hosts, range(first, last)))
    return names


def seats_host_by_host(
    cluster: Cluster, order: Iterable[int], *, replicas: int = 1, tensor_parallel: int = 1
) -> tuple[Seat, ...]:
    """As many equal device groups as fit in every island, one for each stage, class after class.

    Parameters
    ----------
    order
        Of the server classes.
    """
    seats = list[Seat]()
    for index in order:
        server = cluster.servers[index]
        placements = [
            Placement(server_class=index, island=island, replicas=replicas, tensor_parallel=tensor_parallel)
            for island, group in enumerate(server.islands)
            for _ in range(group.count // (replicas * tensor_parallel))
        ]
        host = [Seat(placement=placement, opens=number == 0) for number, placement in enumerate(placements)]
        seats.extend(host * server.count)
    return tuple(seats)


def _device_names(cluster: Cluster, placement: Placement, hosts: range, within: range) -> tuple[str, ...]:
    islands = cluster.servers[placement.server_class].islands
    before = sum(group.count for group in islands[: placement.island])
    names = cluster.host_names(placement.server_class)
    return tuple(f"{names[host]}/{before + index}" for host in hosts for index in within)
