"""A cluster of equal servers with the worst properties of a real one.

Every device is as slow as the slowest and has the least memory of any; links inside a server, and
between two servers, are the slowest of their kind. A server is an island of a real host.
"""

from dataclasses import replace
from functools import reduce
from itertools import combinations, combinations_with_replacement

from stagecut.planner.core.cluster import UNLIMITED, Cluster, Link, Server, slowest
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.share import WHOLE, Share
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import link_between_hosts, link_within_host


def equal_servers(costs: CostModel) -> Cluster:
    """One class with as many servers as a share has islands; measured all-reduces are those of the slowest devices."""
    cluster = costs.cluster
    islands = [island for server in cluster.servers for island in server.islands]
    singles = [
        Placement(server_class=index, island=island)
        for index, server in enumerate(cluster.servers)
        for island in range(len(server.islands))
    ]

    def whole_model_s(single: Placement) -> float:
        """Seconds of forward and backward of one sample through all layers on one device."""
        cost = costs.stage(single, micro_batch=1, recompute=False, start=0, stop=costs.problem.model.num_layers)
        return float(cost.forward_s[0] + cost.backward_s[0])

    slow = max(singles, key=whole_model_s)
    island = replace(
        cluster.servers[slow.server_class].islands[slow.island],
        fabric=reduce(slowest, (island.fabric for island in islands), UNLIMITED),
        shared=any(island.shared for island in islands),
    )
    memory_bytes = min(cluster.device_type(island.device_type).memory_bytes for island in islands)
    num_servers = sum(server.count * len(server.islands) for server in cluster.servers)
    return Cluster(
        name=f"{cluster.name} with equal servers",
        device_types=(replace(cluster.device_type(island.device_type), memory_bytes=memory_bytes),),
        servers=(Server(name="server", islands=(island,), count=num_servers),),
        network=reduce(slowest, _paths(cluster, costs.share), UNLIMITED),
    )


def equal_share(share: Share) -> Share:
    """The share of the only class: rings over pipelines leave the hosts if they do in any class."""
    return WHOLE if share == WHOLE else replace(share, host_splits=(max(share.host_splits),))


def _paths(cluster: Cluster, share: Share) -> list[Link]:
    """All paths between servers, on different hosts or the same one, including to hosts of other pipelines."""
    pairs = combinations_with_replacement(range(len(cluster.servers)), 2)
    between_hosts = [
        link_between_hosts(cluster, (first, 1), (second, 1))
        for first, second in pairs
        if first != second or cluster.servers[first].count > 1 or share.host_split(first) > 1
    ]
    bridges = [
        link_within_host(cluster, index, first, second)
        for index, server in enumerate(cluster.servers)
        for first, second in combinations(range(len(server.islands)), 2)
    ]
    return between_hosts + bridges
