"""HetPipe's allocations: node partition, equal distribution, hybrid distribution."""

import math

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.waves import Allocation
from stagecut.planner.workers.building import Seats, island_devices
from stagecut.planner.workers.rows.row_tables import RowTables

Host = tuple[int, int]
"""Server class, and index of a host in it."""


def seats_by_policy(tables: RowTables, policy: Allocation) -> list[Seats]:
    """The devices of each virtual worker.

    - np: every host is a worker.
    - ed: every island of every host is divided equally among as many workers as possible: the greatest common divisor
      of the islands' sizes. With as many devices in every host that is one device of each host.
    - hd: hosts from the fastest to the slowest, the first joined with the last, the second with the last but one, and
      so on; each pair is divided equally among two workers, or makes one if a size is odd. A host left over in the
      middle is one worker. Speed is that of the devices of a host together, each with the whole model.
    """
    cluster = tables.problem.cluster
    hosts = [(index, host) for index, server in enumerate(cluster.servers) for host in range(server.count)]
    match policy:
        case Allocation.NODE_PARTITION:
            groups, splits = [[host] for host in hosts], [1] * len(hosts)
        case Allocation.EQUAL_DISTRIBUTION:
            groups, splits = [hosts], [math.gcd(*_sizes(cluster, hosts))]
        case _:
            groups = _pairs(sorted(hosts, key=lambda host: -_speed(tables, host[0])))
            splits = [math.gcd(2, *_sizes(cluster, pair)) if len(pair) == 2 else 1 for pair in groups]
    return [seats for group, split in zip(groups, splits, strict=True) for seats in _divided(cluster, group, split)]


def _pairs(hosts: list[Host]) -> list[list[Host]]:
    half = len(hosts) // 2
    pairs = [[hosts[index], hosts[-1 - index]] for index in range(half)]
    return [*pairs, *([[hosts[half]]] if len(hosts) % 2 else [])]


def _sizes(cluster: Cluster, hosts: list[Host]) -> list[int]:
    return [island.count for index, _ in hosts for island in cluster.servers[index].islands]


def _divided(cluster: Cluster, hosts: list[Host], split: int) -> list[Seats]:
    """Equal parts of every island of these hosts."""
    parts = []
    for part in range(split):
        seats: list[tuple[str, ...]] = []
        for index, server in enumerate(cluster.servers):
            own = [island_devices(cluster, index, host) for at, host in hosts if at == index]
            for number, island in enumerate(server.islands):
                size = island.count // split
                seats.append(tuple(n for host in own for n in host[number][part * size : (part + 1) * size]))
        parts.append(tuple(seats))
    return parts


def _speed(tables: RowTables, server_class: int) -> float:
    """Minibatches a second of the devices of a host together, each with the whole model, whether or not it fits."""
    server, total = tables.problem.cluster.servers[server_class], 0.0
    for kind, placement in enumerate(tables.kinds.placements):
        if placement.server_class == server_class:
            costs = tables.costs(kind, 1, recompute=False)
            whole = tables.num_layers - 1  # stage [0, L) among those that begin at layer 0
            seconds = float(costs.forward_s[whole] + costs.backward_s[whole])
            total += server.islands[placement.island].count / max(seconds, 1e-300)
    return total
