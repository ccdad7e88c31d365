"""Time of collective operations."""

from planner.core.cluster import UNLIMITED, Cluster, Link
from planner.core.placement import Placement
from planner.core.share import WHOLE, Share
from planner.cost.plan_costs import Floats


def ring_all_reduce_s(num_bytes: Floats, num_ranks: int, link: Link) -> Floats:
    """Ring all-reduce of `num_bytes` on each of `num_ranks` ranks over links of one speed.

    2 (n - 1) / n bytes / bandwidth + 2 (n - 1) latency (Thakur et al., IJHPCA 2005); nothing for
    a single rank.
    """
    steps = 2 * (num_ranks - 1)
    return steps / num_ranks * num_bytes / link.bandwidth_bytes_per_s + steps * link.latency_s


def group_link(cluster: Cluster, placement: Placement) -> Link:
    """The link of a ring over the devices that share a replica; all replicas of a stage do the same at once.

    In a shared fabric all transfers of a step pass the same root, which leaves each an equal part.
    """
    island = cluster.servers[placement.server_class].islands[placement.island]
    sharing = placement.devices_per_host if island.shared else 1
    return Link(bandwidth_bytes_per_s=island.fabric.bandwidth_bytes_per_s / sharing, latency_s=island.fabric.latency_s)


def ring_link(cluster: Cluster, placement: Placement, share: Share = WHOLE) -> Link:
    """The slowest link of a ring over all replicas of a stage, those of all pipelines included.

    There are `tensor_parallel` such rings at once, one for each part of the weights. In a shared
    fabric all their transfers pass the same root. Between hosts one transfer of each ring leaves
    and one enters each interface; a ring with one device on each host uses no fabric.

    Parameters
    ----------
    cluster
        What one pipeline has of the cluster.
    """
    server = cluster.servers[placement.server_class]
    link = group_link(cluster, placement)
    if not crosses_hosts(placement, share):
        return link
    sharing = share.device_split(placement.server_class)
    if sharing * placement.devices_per_host == placement.tensor_parallel:
        link = UNLIMITED
    network = cluster.network_between(placement.server_class, placement.server_class)
    through = sharing / placement.tensor_parallel
    return Link(
        bandwidth_bytes_per_s=min(
            link.bandwidth_bytes_per_s,
            server.nic.bandwidth_bytes_per_s * through,
            network.bandwidth_bytes_per_s * through,
        ),
        latency_s=max(link.latency_s, 2 * server.nic.latency_s + network.latency_s),
    )


def crosses_hosts(placement: Placement, share: Share) -> bool:
    """Whether the replicas of a stage, over all pipelines, are on several hosts."""
    return placement.num_hosts > 1 or share.host_split(placement.server_class) > 1
