"""Problems with one more unit of some resource, and what becomes of a plan in them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from stagecut.planner.core.cluster import Cluster, Island, Link, NetworkOverride, Server
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import is_share_of
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.network.arrangement import arrangement_of, assemble

MORE_MEMORY = 1.1
FASTER_LINKS = 2.0


class Unit(StrEnum):
    """A resource of which there could be more."""

    SERVER = "server"
    MEMORY = "memory"
    NIC = "nic"
    FABRIC = "fabric"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A problem with one more unit of a resource."""

    name: str
    """In words, for example `one more server a100`."""
    unit: Unit
    problem: Problem


def what_ifs(problem: Problem, units: tuple[Unit, ...] = tuple(Unit)) -> Iterator[WhatIf]:
    """Every problem with one more unit: a server of each class, memory, interfaces, fabrics.

    Resources that are already unlimited are left out.
    """
    for unit, name, cluster in _larger(problem.cluster):
        if unit in units:
            yield WhatIf(name=name, unit=unit, problem=replace(problem, cluster=cluster))


def plan_in(what_if: Problem, problem: Problem, plan: Plan) -> Plan | None:
    """The plan on the hosts, devices and memory of another problem with the same classes of servers.

    Hosts may have other names there, and stages that recomputed for lack of memory may no longer need to. An
    interleaved plan uses all devices, so it is either in the other search space unchanged or has no counterpart.
    None if the plan or its counterpart is not in its search space.
    """
    costs, others = CostModel(problem), CostModel(what_if)
    if faults(costs, plan) or not is_share_of(what_if.cluster, plan.share):
        return None
    if plan.chunks > 1:
        return None if faults(others, plan) else plan
    moved = assemble(others.of(plan.share), plan.variant, arrangement_of(costs.of(plan.share), plan))
    # Where stages may not differ, those that no longer recompute have to do as the others.
    return None if moved is None or (problem.rules is not None and faults(others, moved)) else moved


def with_one_more_server(cluster: Cluster, index: int) -> Cluster:
    """One more host of a class, which is renamed if the names of its hosts would collide."""
    server = cluster.servers[index]
    taken = {name for other in range(len(cluster.servers)) if other != index for name in cluster.host_names(other)}
    taken |= {other.name for other in cluster.servers if other is not server}
    name = server.name
    while name in taken or any(f"{name}-{host}" in taken for host in range(server.count + 1)):
        name += "+"
    grown = replace(server, name=name, count=server.count + 1)
    servers = (*cluster.servers[:index], grown, *cluster.servers[index + 1 :])

    def renamed(override: NetworkOverride) -> NetworkOverride:
        first, second = (name if end == server.name else end for end in override.servers)
        return replace(override, servers=(first, second))

    return replace(cluster, servers=servers, overrides=tuple(map(renamed, cluster.overrides)))


def with_more_memory(cluster: Cluster, factor: float = MORE_MEMORY) -> Cluster:
    """Multiply the memory of every device."""
    grown = (replace(kind, memory_bytes=kind.memory_bytes * factor) for kind in cluster.device_types)
    return replace(cluster, device_types=tuple(grown))


def with_faster_interfaces(cluster: Cluster) -> Cluster:
    """Multiply the bandwidth of every server's network interface; the network between them stays.

    A network with a table, which includes the interfaces, is scaled as a whole.
    """

    def faster(path: Link) -> Link:
        return path.scaled(FASTER_LINKS) if path.table else path

    grown = _with_servers(cluster, lambda server: replace(server, nic=server.nic.scaled(FASTER_LINKS)))
    overrides = tuple(replace(override, link=faster(override.link)) for override in cluster.overrides)
    return replace(grown, network=faster(cluster.network), overrides=overrides)


def with_faster_fabrics(cluster: Cluster) -> Cluster:
    """Multiply the bandwidth of every island's fabric, measured ones included; explicit bridges stay."""

    def faster(island: Island) -> Island:
        tables = tuple(table.scaled(FASTER_LINKS) for table in island.all_reduce)
        return replace(island, fabric=island.fabric.scaled(FASTER_LINKS), all_reduce=tables)

    return _with_servers(cluster, lambda server: replace(server, islands=tuple(map(faster, server.islands))))


def _larger(cluster: Cluster) -> Iterator[tuple[Unit, str, Cluster]]:
    for index, server in enumerate(cluster.servers):
        yield Unit.SERVER, f"one more server {server.name}", with_one_more_server(cluster, index)
    if any(math.isfinite(kind.memory_bytes) for kind in cluster.device_types):
        yield Unit.MEMORY, "10 % more memory on every device", with_more_memory(cluster)
    # Measured paths, which have tables, include interfaces.
    paths = (path for path in (cluster.network, *(other.link for other in cluster.overrides)) if path.table)
    if not all(link.is_unlimited for link in (*(server.nic for server in cluster.servers), *paths)):
        yield Unit.NIC, "interfaces of every server twice as fast", with_faster_interfaces(cluster)
    islands = [island for server in cluster.servers for island in server.islands]
    if any(island.all_reduce or not island.fabric.is_unlimited for island in islands):
        yield Unit.FABRIC, "fabrics of every server twice as fast", with_faster_fabrics(cluster)


def _with_servers(cluster: Cluster, change: Callable[[Server], Server]) -> Cluster:
    return replace(cluster, servers=tuple(map(change, cluster.servers)))
