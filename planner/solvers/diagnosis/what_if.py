"""Problems with one more unit of something, and what a plan becomes in them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, NetworkOverride, Server
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import is_share_of
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.network.layout import assemble, layout_of

MORE_MEMORY = 1.1
FASTER_LINKS = 2.0


class Unit(StrEnum):
    """What there may be more of."""

    SERVER = "server"
    MEMORY = "memory"
    NIC = "nic"
    FABRIC = "fabric"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A problem with one unit more."""

    name: str
    """For people, for example `one more server a100`."""
    unit: Unit
    problem: Problem


def what_ifs(problem: Problem, units: tuple[Unit, ...] = tuple(Unit)) -> Iterator[WhatIf]:
    """Every problem with one unit more: a server of each class, memory, interfaces, fabrics.

    What is unlimited already is left out.
    """
    cluster = problem.cluster
    if Unit.SERVER in units:
        for index, server in enumerate(cluster.servers):
            yield _changed(problem, f"one more server {server.name}", Unit.SERVER, with_one_more_server(cluster, index))
    if Unit.MEMORY in units and any(_is_limited(kind.memory_bytes) for kind in cluster.device_types):
        yield _changed(problem, "10 % more memory on every device", Unit.MEMORY, with_more_memory(cluster))
    if Unit.NIC in units and any(not link.is_unlimited for link in _interfaces(cluster)):
        yield _changed(problem, "interfaces of every server twice as fast", Unit.NIC, with_faster_interfaces(cluster))
    if Unit.FABRIC in units and any(map(_has_limited_fabric, _islands(cluster))):
        yield _changed(problem, "fabrics of every server twice as fast", Unit.FABRIC, with_faster_fabrics(cluster))


def plan_in(what_if: Problem, problem: Problem, plan: Plan) -> Plan | None:
    """The plan of one problem on the hosts, devices and memory of another with the same classes of servers.

    Hosts may have other names there, and stages that recompute for lack of memory need not any more. An
    interleaved plan uses all devices, so it is either in the other search space as it is, or has no counterpart.
    None where the plan, or what becomes of it, is not in the search space.
    """
    costs, others = CostModel(problem), CostModel(what_if)
    if faults(costs, plan) or not is_share_of(what_if.cluster, plan.share):
        return None
    if plan.chunks > 1:
        return None if faults(others, plan) else plan
    return assemble(others.of(plan.share), plan.variant, layout_of(costs.of(plan.share), plan))


def with_one_more_server(cluster: Cluster, index: int) -> Cluster:
    """One more host of a class, which gets another name where the names of its hosts would be taken."""
    server = cluster.servers[index]
    taken = {name for other in range(len(cluster.servers)) if other != index for name in cluster.host_names(other)}
    taken |= {other.name for other in cluster.servers if other is not server}
    name = server.name
    while name in taken or any(f"{name}-{host}" in taken for host in range(server.count + 1)):
        name += "+"
    grown = replace(server, name=name, count=server.count + 1)
    return replace(
        cluster,
        servers=(*cluster.servers[:index], grown, *cluster.servers[index + 1 :]),
        overrides=tuple(_renamed(override, server.name, name) for override in cluster.overrides),
    )


def with_more_memory(cluster: Cluster, factor: float = MORE_MEMORY) -> Cluster:
    """The memory of every device multiplied."""

    def grown(kind: DeviceType) -> DeviceType:
        return replace(kind, memory_bytes=kind.memory_bytes * factor)

    return replace(cluster, device_types=tuple(map(grown, cluster.device_types)))


def with_faster_interfaces(cluster: Cluster, factor: float = FASTER_LINKS) -> Cluster:
    """The bandwidth of every server's network interface multiplied; the network between them stays.

    Where the network has a table, which includes the interfaces, that is read as much faster.
    """

    def faster(path: Link) -> Link:
        return path.scaled(factor) if path.table else path

    grown = _with_servers(cluster, lambda server: replace(server, nic=server.nic.scaled(factor)))
    overrides = tuple(replace(override, link=faster(override.link)) for override in cluster.overrides)
    return replace(grown, network=faster(cluster.network), overrides=overrides)


def with_faster_fabrics(cluster: Cluster, factor: float = FASTER_LINKS) -> Cluster:
    """The bandwidth of every island's fabric multiplied, also where measured; a bridge that is stated stays."""

    def faster(island: Island) -> Island:
        tables = tuple(table.scaled(factor) for table in island.all_reduce)
        return replace(island, fabric=island.fabric.scaled(factor), all_reduce=tables)

    return _with_servers(cluster, lambda server: replace(server, islands=tuple(map(faster, server.islands))))


def _changed(problem: Problem, name: str, unit: Unit, cluster: Cluster) -> WhatIf:
    return WhatIf(name=name, unit=unit, problem=replace(problem, cluster=cluster))


def _with_servers(cluster: Cluster, change: Callable[[Server], Server]) -> Cluster:
    return replace(cluster, servers=tuple(map(change, cluster.servers)))


def _interfaces(cluster: Cluster) -> Iterator[Link]:
    """Of every server, and the ways that include them."""
    yield from (server.nic for server in cluster.servers)
    yield from (path for path in (cluster.network, *(other.link for other in cluster.overrides)) if path.table)


def _islands(cluster: Cluster) -> Iterator[Island]:
    return (island for server in cluster.servers for island in server.islands)


def _has_limited_fabric(island: Island) -> bool:
    return not island.fabric.is_unlimited or bool(island.all_reduce)


def _renamed(override: NetworkOverride, old: str, new: str) -> NetworkOverride:
    first, second = (new if name == old else name for name in override.servers)
    return replace(override, servers=(first, second))


def _is_limited(value: float) -> bool:
    return value < float("inf")
