"""Device groups of given sizes, each on the next free devices of the cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.placement import Placement
from stagecut.planner.network.device_groups import PlacedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """How many devices one device group takes."""

    replicas: int = 1
    tensor_parallel: int = 1

    @property
    def num_devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.tensor_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    server_class: int
    host: int
    island: int


def fill_hosts(cluster: Cluster, order: Iterable[int], sizes: Sequence[GroupSize]) -> tuple[PlacedGroup, ...]:
    """Groups of these sizes, host after host, with the server classes in the given order, each once.

    A group takes devices of one island, or all devices of several hosts with a single island, each replica inside one
    of them; where the rest of an island does not suffice it begins the next one.

    Raises
    ------
    BadInputError
        If the devices do not suffice.
    """
    places = [
        _Place(server_class=index, host=host, island=island)
        for index in order
        for host in range(cluster.servers[index].count)
        for island in range(len(cluster.servers[index].islands))
    ]
    placed, at, used, host = list[PlacedGroup](), 0, 0, None
    for number, size in enumerate(sizes):
        while at < len(places) and not _num_hosts(cluster, places[at], used, size):
            at, used = at + 1, 0
        if at == len(places):
            raise BadInputError(_too_few(cluster, sizes, number))
        place, num_hosts = places[at], _num_hosts(cluster, places[at], used, size)
        opened = (place.server_class, place.host)
        placed.append(PlacedGroup(placement=_placement(place, num_hosts, size), opens=opened != host))
        at, used, host = (at, used + size.num_devices, opened) if num_hosts == 1 else (at + num_hosts, 0, opened)
    return tuple(placed)


def _num_hosts(cluster: Cluster, place: _Place, used: int, size: GroupSize) -> int:
    """On how many hosts a group of that size goes that begins here; 0 if it does not fit."""
    server = cluster.servers[place.server_class]
    if used + size.num_devices <= server.islands[place.island].count:
        return 1
    hosts, rest = divmod(size.num_devices, server.num_devices)
    whole = rest == 0 and server.num_devices % size.tensor_parallel == 0 and len(server.islands) == 1
    return hosts if whole and used == 0 and place.host + hosts <= server.count else 0


def _placement(place: _Place, num_hosts: int, size: GroupSize) -> Placement:
    return Placement(
        server_class=place.server_class,
        island=place.island,
        num_hosts=num_hosts,
        replicas=size.replicas,
        tensor_parallel=size.tensor_parallel,
    )


def _too_few(cluster: Cluster, sizes: Sequence[GroupSize], number: int) -> str:
    size, before = sizes[number], sum(each.num_devices for each in sizes[:number])
    return (
        f"device group {number} of {len(sizes)} needs {size.num_devices} free devices (replicas "
        f"{size.replicas} x tensor parallel {size.tensor_parallel}) of one island, or whole hosts with each replica "
        f"inside one, and the groups before it take {before} of the {cluster.num_devices} devices of "
        f"{cluster.name!r}; use fewer stages, replicas or pipelines, or a smaller degree of tensor parallelism"
    )
