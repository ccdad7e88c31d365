"""Equal shares of the cluster for identical pipelines."""

import itertools
import math
from dataclasses import dataclass, replace

from stagecut.planner.core.cluster import Cluster, Island, NetworkOverride, Server
from stagecut.planner.core.messages.checks import require, require_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How the hosts of every class are divided among P identical pipelines.

    In every class, P = host split x device split: the hosts are divided among `host_splits` groups of
    pipelines, and the devices of every island in a host among the P / `host_splits` pipelines of a group.
    """

    num_pipelines: int = 1
    host_splits: tuple[int, ...] = ()
    """One per server class; empty for a single pipeline, which has the whole cluster."""

    def __post_init__(self) -> None:
        require_count("share", "num_pipelines", self.num_pipelines)
        rule = "given for several pipelines only"
        require(bool(self.host_splits) == (self.num_pipelines > 1), "share", "host_splits", rule, self)
        for split in self.host_splits:
            require_count("share", "host_splits", split)
            require(self.num_pipelines % split == 0, "share", "host_splits", "divisors of num_pipelines", self)

    def host_split(self, server_class: int) -> int:
        """Number of groups of pipelines with separate hosts in the class."""
        return self.host_splits[server_class] if self.host_splits else 1

    def device_split(self, server_class: int) -> int:
        """Number of pipelines that share each host of the class."""
        return self.num_pipelines // self.host_split(server_class)


WHOLE = Share()
"""The share of a single pipeline: everything."""


def shares_of(cluster: Cluster, num_pipelines: int) -> tuple[Share, ...]:
    """The ways to divide the cluster into P equal shares, splitting hosts first or devices first.

    Hosts first: the hosts of every class are divided among gcd(P, hosts) groups, and the devices of a host
    among the pipelines of a group. Devices first: islands are divided by the gcd of P and their sizes, and
    hosts by the rest. Ways that do not divide evenly are left out.
    """
    if num_pipelines == 1:
        return (WHOLE,)
    # Nearly every P ends here, and as many are tried as there are devices.
    if any(server.count * _slots(server) % num_pipelines for server in cluster.servers):
        return ()
    servers_first = tuple(math.gcd(num_pipelines, server.count) for server in cluster.servers)
    devices_first = tuple(num_pipelines // math.gcd(num_pipelines, _slots(server)) for server in cluster.servers)
    ways = dict.fromkeys((servers_first, devices_first))
    return tuple(
        Share(num_pipelines=num_pipelines, host_splits=splits)
        for splits in ways
        if all(
            server.count % split == 0 and _slots(server) % (num_pipelines // split) == 0
            for server, split in zip(cluster.servers, splits, strict=True)
        )
    )


def is_share_of(cluster: Cluster, share: Share) -> bool:
    """Whether the cluster can be divided like this."""
    return share in shares_of(cluster, share.num_pipelines)


def cluster_share(cluster: Cluster, share: Share) -> Cluster:
    """The share of one pipeline as a cluster of its own.

    Pipelines that share a host send at the same time, so each gets an equal part of what they share:
    interfaces, network paths, bridges and shared fabrics. A switch keeps its full speed for each.
    """
    if share.num_pipelines == 1:
        return cluster
    servers = tuple(_server_share(server, share, index) for index, server in enumerate(cluster.servers))
    pairs = itertools.combinations_with_replacement(range(len(cluster.servers)), 2)
    overrides = tuple(_path_share(cluster, share, first, second) for first, second in pairs)
    name = f"one of {share.num_pipelines} equal shares of {cluster.name}"
    return replace(cluster, name=name, servers=servers, overrides=overrides)


def device_names(cluster: Cluster, share: Share, pipeline: int) -> dict[str, str]:
    """Map the device names in a share to those of one pipeline in the cluster.

    In every class, pipeline p has host group p // device_split and part p % device_split of the devices of
    each island.
    """
    part = cluster_share(cluster, share)
    names: dict[str, str] = {}
    for index, (own, server) in enumerate(zip(part.servers, cluster.servers, strict=True)):
        group, slice_number = divmod(pipeline, share.device_split(index))
        own_hosts, hosts = part.host_names(index), cluster.host_names(index)
        for host in range(own.count):
            for mine, theirs in _slot_pairs(own, server, slice_number):
                names[f"{own_hosts[host]}/{mine}"] = f"{hosts[group * own.count + host]}/{theirs}"
    return names


def _slot_pairs(own: Server, server: Server, slice_number: int) -> list[tuple[int, int]]:
    """Pairs of device indices on a host, in the share and in the cluster."""
    pairs, mine, first = [], 0, 0
    for part, island in zip(own.islands, server.islands, strict=True):
        begin = first + slice_number * part.count
        pairs += [(mine + offset, begin + offset) for offset in range(part.count)]
        mine += part.count
        first += island.count
    return pairs


def _path_share(cluster: Cluster, share: Share, first: int, second: int) -> NetworkOverride:
    """The network between two classes: a path is used by the pipelines that share both of its hosts.

    A path with a table includes the interfaces, which all pipelines on either host use.
    """
    path, splits = cluster.network_between(first, second), (share.device_split(first), share.device_split(second))
    return NetworkOverride(
        servers=(cluster.servers[first].name, cluster.servers[second].name),
        link=path.scaled(over=max(splits) if path.table else min(splits)),
    )


def _server_share(server: Server, share: Share, index: int) -> Server:
    sharing = share.device_split(index)
    return replace(
        server,
        count=server.count // share.host_split(index),
        islands=tuple(_island_share(island, sharing) for island in server.islands),
        nic=server.nic.scaled(over=sharing),
        bridge=None if server.bridge is None else server.bridge.scaled(over=sharing),
    )


def _island_share(island: Island, sharing: int) -> Island:
    fabric = island.fabric.scaled(over=sharing) if island.shared else island.fabric
    return replace(island, count=island.count // sharing, fabric=fabric)


def _slots(server: Server) -> int:
    """Largest number of pipelines that can divide every island equally."""
    return math.gcd(*(island.count for island in server.islands))
