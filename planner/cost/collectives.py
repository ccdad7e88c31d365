"""Time of collective operations."""

from planner.core.cluster import Cluster, Link
from planner.core.placement import Placement
from planner.cost.plan_costs import Floats


def ring_all_reduce_s(num_bytes: Floats, num_ranks: int, link: Link) -> Floats:
    """Ring all-reduce of `num_bytes` on each of `num_ranks` ranks over links of one speed.

    2 (n - 1) / n bytes / bandwidth + 2 (n - 1) latency (Thakur et al., IJHPCA 2005); nothing for
    a single rank.
    """
    steps = 2 * (num_ranks - 1)
    return steps / num_ranks * num_bytes / link.bandwidth_bytes_per_s + steps * link.latency_s


def ring_link(cluster: Cluster, placement: Placement) -> Link:
    """The slowest link of a ring over all devices of a placement.

    In a shared fabric all n transfers of a step of the ring pass the same root, which leaves each
    1/n of its bandwidth. Between hosts one transfer leaves and one enters each interface.
    """
    server = cluster.servers[placement.server_class]
    island = server.islands[placement.island]
    in_host = placement.replicas // placement.num_hosts
    sharing = in_host if island.shared else 1
    bandwidths = [island.fabric.bandwidth_bytes_per_s / sharing]
    latencies = [island.fabric.latency_s]
    if placement.num_hosts > 1:
        network = cluster.network_between(placement.server_class, placement.server_class)
        bandwidths += [server.nic.bandwidth_bytes_per_s, network.bandwidth_bytes_per_s]
        latencies.append(2 * server.nic.latency_s + network.latency_s)
    return Link(bandwidth_bytes_per_s=min(bandwidths), latency_s=max(latencies))
