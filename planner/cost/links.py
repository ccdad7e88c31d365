"""Links between the devices of consecutive stages, and which transfers share them."""

import numpy as np

from stagecut.planner.core.cluster import Cluster, Link, slowest
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.placement import DeviceGroup, Placement
from stagecut.planner.core.share import WHOLE, Share


def link_within_host(cluster: Cluster, server_class: int, first_island: int, second_island: int) -> Link:
    """The fabric of an island, or the bridge between two islands of a host.

    A server without a stated bridge gets the slower of the two fabrics: see
    :func:`stagecut.planner.core.cluster.slowest`.
    """
    server = cluster.servers[server_class]
    if first_island == second_island:
        return server.islands[first_island].fabric
    if server.bridge is not None:
        return server.bridge
    return slowest(server.islands[first_island].fabric, server.islands[second_island].fabric)


def link_between_hosts(cluster: Cluster, sender: tuple[int, int], receiver: tuple[int, int]) -> Link:
    """The link from the hosts of one stage to those of the next.

    Each side is (server class, number of hosts): m hosts send their parts of a micro-batch at
    once through m interfaces, over as many network paths as the smaller side has hosts. A measured
    path includes the interfaces.
    """
    (from_class, from_hosts), (to_class, to_hosts) = sender, receiver
    from_nic, to_nic = cluster.servers[from_class].nic, cluster.servers[to_class].nic
    network = cluster.network_between(from_class, to_class)
    if network.table:
        return network.scaled(min(from_hosts, to_hosts))
    return Link(
        bandwidth_bytes_per_s=min(
            from_hosts * from_nic.bandwidth_bytes_per_s,
            to_hosts * to_nic.bandwidth_bytes_per_s,
            min(from_hosts, to_hosts) * network.bandwidth_bytes_per_s,
        ),
        latency_s=from_nic.latency_s + to_nic.latency_s + network.latency_s,
    )


def half_transfer_s(link: Link, message_bytes: Floats) -> Floats:
    """Seconds for half a message: those for half the bytes, but at least half of those for all bytes."""
    return np.maximum(link.transfer_s(message_bytes / 2), link.transfer_s(message_bytes) / 2)


def link_between(cluster: Cluster, sender: DeviceGroup, receiver: DeviceGroup) -> Link:
    """The link from one stage to the next, one direction."""
    first, second = sender.placement, receiver.placement
    if _same_host(sender, receiver):
        return link_within_host(cluster, first.server_class, first.island, second.island)
    return link_between_hosts(cluster, (first.server_class, first.num_hosts), (second.server_class, second.num_hosts))


def route_between(cluster: Cluster, sender: DeviceGroup, receiver: DeviceGroup) -> tuple[str, ...]:
    """Names of the links that a transfer shares with others and has to queue for.

    All hosts of a stage send and receive alike, so the first one stands for all.
    """
    if not _same_host(sender, receiver):
        return (f"{_host_name(cluster, sender)}:nic-out", f"{_host_name(cluster, receiver)}:nic-in")
    first, second = sender.placement, receiver.placement
    if first.island != second.island:
        return (f"{_host_name(cluster, sender)}:bridge",)
    return _fabric_route(cluster, sender)


def sync_route(cluster: Cluster, group: DeviceGroup, share: Share = WHOLE) -> tuple[str, ...]:
    """Links that the gradient all-reduce of a stage occupies, over its replicas in all pipelines."""
    placement = group.placement
    if placement.replicas * share.num_pipelines == 1:
        return ()
    if crosses_hosts(placement, share):
        host = _host_name(cluster, group)
        return (f"{host}:nic-in", f"{host}:nic-out")
    return _fabric_route(cluster, group)


def crosses_hosts(placement: Placement, share: Share) -> bool:
    """Whether the replicas of a stage in all pipelines are on several hosts."""
    return placement.num_hosts > 1 or share.host_split(placement.server_class) > 1


def _same_host(sender: DeviceGroup, receiver: DeviceGroup) -> bool:
    same_class = sender.placement.server_class == receiver.placement.server_class
    return same_class and sender.hosts == receiver.hosts


def _fabric_route(cluster: Cluster, group: DeviceGroup) -> tuple[str, ...]:
    placement = group.placement
    if not cluster.servers[placement.server_class].islands[placement.island].shared:
        return ()
    return (f"{_host_name(cluster, group)}:fabric-{placement.island}",)


def _host_name(cluster: Cluster, group: DeviceGroup) -> str:
    return cluster.host_names(group.placement.server_class)[group.hosts[0]]
