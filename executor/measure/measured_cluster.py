"""A cluster from measurements of its devices and links."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, pairwise

from stagecut.executor.measure.curves import Curve, latency_and_bandwidth, median_curve, rising, slowest_curve
from stagecut.executor.measure.kernels import update_bandwidth_bytes_per_s
from stagecut.executor.measure.profile_links import LinkChoices, RankMeasurement, group_sizes, hosts_of
from stagecut.executor.measure.timings import summarize
from stagecut.planner.core.cluster import (
    UNLIMITED,
    AllReduceTable,
    Cluster,
    DeviceType,
    Island,
    Link,
    NetworkOverride,
    Server,
)

MEASURED = "measured by plan profile links"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClass:
    """Hosts with the same number and kind of devices."""

    name: str
    device_type: str
    hosts: tuple[tuple[int, ...], ...]
    """Ranks of each host."""


def measured_cluster(found: Sequence[RankMeasurement], choices: LinkChoices, *, name: str) -> Cluster:
    """The cluster of all ranks: one island per host, identical hosts in one class."""
    classes = host_classes(found)
    kinds = dict.fromkeys(rank.device_type for rank in found)
    pairs = list(combinations_with_replacement(classes, 2))
    links = {(a.name, b.name): _link_between(found, a, b) for a, b in pairs}
    measured = [link for link in links.values() if link is not None]
    network = _link(median_curve([link.table for link in measured])) if measured else UNLIMITED
    return Cluster(
        name=name,
        device_types=tuple(
            _device_type([rank for rank in found if rank.device_type == kind], choices) for kind in kinds
        ),
        servers=tuple(_server(found, each) for each in classes),
        network=network,
        overrides=tuple(
            NetworkOverride(servers=pair, link=link)
            for pair, link in links.items()
            if link is not None and len(measured) > 1
        ),
    )


def host_classes(found: Sequence[RankMeasurement]) -> list[HostClass]:
    """Classes of identical hosts, each named after its first host."""
    alike: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for ranks in hosts_of([rank.host for rank in found]):
        alike.setdefault((found[ranks[0]].device_type, len(ranks)), []).append(tuple(ranks))
    names: list[str] = []
    for hosts in alike.values():
        name = found[hosts[0][0]].host_name
        names.append(name if name not in names else f"{name}-{len(names)}")
    return [
        HostClass(name=name, device_type=device_type, hosts=tuple(hosts))
        for name, ((device_type, _), hosts) in zip(names, alike.items(), strict=True)
    ]


def _device_type(ranks: Sequence[RankMeasurement], choices: LinkChoices) -> DeviceType:
    rates = {
        precision: 2
        * choices.matrix_side**3
        / summarize([timing for rank in ranks for timing in rank.products[precision]]).total_s
        for precision in ranks[0].products
    }
    update = summarize([timing for rank in ranks for timing in rank.updates])
    return DeviceType(
        name=ranks[0].device_type,
        peak_flops_per_s=tuple(sorted(rates.items())),
        memory_bytes=float(min(rank.memory_bytes for rank in ranks)),
        memory_bandwidth_bytes_per_s=update_bandwidth_bytes_per_s(choices.num_params, update.total_s),
        source=f"{MEASURED} on {ranks[0].device_title}: matrix products, updates by AdamW",
    )


def _server(found: Sequence[RankMeasurement], hosts: HostClass) -> Server:
    inside = [found[a].one_way[b] for ranks in hosts.hosts for a, b in pairwise(ranks)]
    island = Island(
        device_type=hosts.device_type,
        count=len(hosts.hosts[0]),
        fabric=_link(median_curve(inside)) if inside else UNLIMITED,
        all_reduce=tuple(
            AllReduceTable(num_devices=size, table=rising(median_curve(_all_reduces(found, hosts, size))))
            for size in group_sizes(len(hosts.hosts[0]))
        ),
    )
    return Server(name=hosts.name, islands=(island,), count=len(hosts.hosts))


def _all_reduces(found: Sequence[RankMeasurement], hosts: HostClass, size: int) -> list[Curve]:
    """One curve per host: an all-reduce ends when it has ended on all ranks."""
    return [slowest_curve([found[rank].all_reduce[size] for rank in ranks[:size]]) for ranks in hosts.hosts]


def _link_between(found: Sequence[RankMeasurement], first: HostClass, second: HostClass) -> Link | None:
    """The median over all pairs of hosts, one from each class."""
    if first is second:
        pairs = list(combinations(first.hosts, 2))
    else:
        pairs = [(a, b) for a in first.hosts for b in second.hosts]
    ends = [sorted((a[0], b[0])) for a, b in pairs]
    return _link(median_curve([found[a].one_way[b] for a, b in ends])) if ends else None


def _link(curve: Curve) -> Link:
    table = rising(curve)
    latency_s, bandwidth_bytes_per_s = latency_and_bandwidth(table)
    return Link(bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=latency_s, table=table, source=MEASURED)
