"""Device groups: which ones a stage may take, and the names of the devices they get."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stagecut.planner.core.cluster import Cluster, Server
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem


def placements_in_host(
    problem: Problem, *, server_class: int, island: int, free: int, micro_batch: int
) -> Iterator[Placement]:
    """Every replicas x tensor_parallel of `free` devices of one island."""
    for degree, sharding in problem.divisions:
        for replicas in range(1, free // degree + 1):
            if problem.job.allows_replicas(replicas, micro_batch):
                yield Placement(
                    server_class=server_class,
                    island=island,
                    replicas=replicas,
                    tensor_parallel=degree,
                    sharding=sharding,
                )


def placements_on_hosts(
    problem: Problem, cluster: Cluster, *, server_class: int, num_hosts: int, micro_batch: int
) -> Iterator[Placement]:
    """Every way to take all devices of m >= 2 whole hosts; none in a class with several islands."""
    server = cluster.servers[server_class]
    if len(server.islands) > 1:
        return
    for degree, sharding in problem.divisions:
        replicas, rest = divmod(num_hosts * server.num_devices, degree)
        if server.num_devices % degree == 0 and rest == 0 and problem.job.allows_replicas(replicas, micro_batch):
            yield Placement(
                server_class=server_class,
                island=0,
                num_hosts=num_hosts,
                replicas=replicas,
                tensor_parallel=degree,
                sharding=sharding,
            )


def placements_on_whole_hosts(
    problem: Problem, cluster: Cluster, *, server_class: int, most: int, micro_batch: int
) -> Iterator[Placement]:
    """Every way to take all devices of 2 to `most` whole hosts."""
    most = min(most, most_hosts(problem, cluster.servers[server_class], micro_batch))
    for num_hosts in range(2, most + 1):
        yield from placements_on_hosts(
            problem, cluster, server_class=server_class, num_hosts=num_hosts, micro_batch=micro_batch
        )


def most_hosts(problem: Problem, server: Server, micro_batch: int) -> int:
    """Most whole hosts of a class that one stage can take, at least one: each replica needs a sample."""
    largest = max(degree for degree, _ in problem.divisions)
    return max(1, min(server.count, micro_batch * largest // server.num_devices))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGroup:
    """The device group of one stage."""

    placement: Placement
    opens: bool
    """Whether it opens new hosts; False: it is on the host of the stage before."""


def name_devices(cluster: Cluster, groups: Sequence[PlacedGroup]) -> list[tuple[str, ...]] | None:
    """Device names of every stage; None if the cluster does not have enough hosts or devices.

    Hosts of a class are opened in order and devices of an island are taken in order, so equal
    sequences get equal names.
    """
    opened = [0] * len(cluster.servers)
    hosts: range = range(0)
    used: dict[int, int] = {}
    names = []
    for group in groups:
        placement = group.placement
        server = cluster.servers[placement.server_class]
        if group.opens:
            first_host = opened[placement.server_class]
            hosts = range(first_host, first_host + placement.num_hosts)
            opened[placement.server_class] = hosts.stop
            used = {}
        first = used.get(placement.island, 0)
        last = first + placement.devices_per_host
        if hosts.stop > server.count or last > server.islands[placement.island].count:
            return None
        used[placement.island] = last
        before = sum(island.count for island in server.islands[: placement.island])
        host_names = cluster.host_names(placement.server_class)
        devices = range(before + first, before + last)
        names.append(tuple(f"{host_names[host]}/{device}" for host in hosts for device in devices))
    return names


def groups_host_by_host(
    cluster: Cluster, order: Iterable[int], *, replicas: int = 1, tensor_parallel: int = 1
) -> tuple[PlacedGroup, ...]:
    """As many equal device groups as fit in every island, one for each stage, with the classes in the given order."""
    groups = list[PlacedGroup]()
    for index in order:
        server = cluster.servers[index]
        placements = [
            Placement(server_class=index, island=number, replicas=replicas, tensor_parallel=tensor_parallel)
            for number, island in enumerate(server.islands)
            for _ in range(island.count // (replicas * tensor_parallel))
        ]
        host = [PlacedGroup(placement=placement, opens=number == 0) for number, placement in enumerate(placements)]
        groups.extend(host * server.count)
    return tuple(groups)
