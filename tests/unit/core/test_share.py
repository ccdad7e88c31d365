"""Equal parts of a cluster for identical pipelines.

`quad`: two hosts of four devices. `mixed`: four hosts with islands of two devices and of four.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from stagecut.planner.core.cluster import AllReduceTable, Cluster, Island, Link, NetworkOverride, Server
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.share import WHOLE, Share, cluster_share, device_names, is_share_of, shares_of
from tests.catalogue import kinds
from tests.property.strategies import clusters


def link(bandwidth):
    return Link(bandwidth_bytes_per_s=bandwidth, latency_s=1.0)


QUAD = Server(name="quad", islands=(Island(device_type="gpu", count=4, fabric=link(8.0)),), count=2, nic=link(6.0))
MIXED = Server(
    name="mixed",
    islands=(
        Island(device_type="gpu", count=2, fabric=link(8.0), shared=True),
        Island(device_type="gpu", count=4, fabric=link(8.0)),
    ),
    count=4,
    nic=link(6.0),
    bridge=link(10.0),
)
CLUSTER = Cluster(
    name="both",
    device_types=kinds(gpu=1.0),
    servers=(QUAD, MIXED),
    network=link(12.0),
    overrides=(NetworkOverride(servers=("mixed", "quad"), link=link(24.0)),),
)
ONLY_QUAD = replace(CLUSTER, servers=(QUAD,), overrides=())


def splits(cluster, num_pipelines):
    return [share.host_splits for share in shares_of(cluster, num_pipelines)]


@pytest.mark.parametrize(
    ("num_pipelines", "host_splits"),
    [(1, [()]), (2, [(2,), (1,)]), (3, []), (4, [(2,), (1,)]), (5, []), (8, [(2,)]), (16, [])],
)
def test_whole_hosts_are_dealt_out_first_or_devices_of_every_host(num_pipelines, host_splits):
    """Two hosts of four: 4 pipelines have half a host, or a device of each host; 8 a device either way."""
    assert splits(ONLY_QUAD, num_pipelines) == host_splits


def test_every_class_is_dealt_out_as_far_as_its_counts_go():
    """4 pipelines: two groups of `quad` hosts and four of `mixed`; or each device of `quad`, and pairs of `mixed`."""
    assert splits(CLUSTER, 2) == [(2, 2), (1, 1)]
    assert splits(CLUSTER, 4) == [(2, 4), (1, 2)]
    assert splits(CLUSTER, 8) == [(2, 4)]


def test_whole_cluster_is_the_share_of_a_single_pipeline():
    assert shares_of(CLUSTER, 1) == (WHOLE,)
    assert cluster_share(CLUSTER, WHOLE) is CLUSTER
    assert {own: name for own, name in device_names(CLUSTER, WHOLE, 0).items() if own != name} == {}


def test_only_what_comes_out_even_is_a_share():
    assert is_share_of(CLUSTER, Share(num_pipelines=2, host_splits=(1, 1)))
    assert not is_share_of(CLUSTER, Share(num_pipelines=2, host_splits=(1, 2)))
    assert not is_share_of(CLUSTER, Share(num_pipelines=3, host_splits=(1, 1)))


@pytest.mark.parametrize(("num_pipelines", "host_splits"), [(2, ()), (1, (1,)), (4, (3,)), (0, ()), (2, (0,))])
def test_share_that_means_nothing_is_refused(num_pipelines, host_splits):
    with pytest.raises(BadInputError):
        Share(num_pipelines=num_pipelines, host_splits=host_splits)


def test_hosts_of_ones_own_keep_their_speed():
    """2 pipelines: a `quad` host and two `mixed` ones, with their interfaces and network."""
    part = cluster_share(CLUSTER, Share(num_pipelines=2, host_splits=(2, 2)))
    assert [replace(server, count=1) for server in part.servers] == [replace(QUAD, count=1), replace(MIXED, count=1)]
    assert [server.count for server in part.servers] == [1, 2]
    assert part.network_between(0, 1) == link(24.0)
    assert part.network_between(0, 0) == part.network_between(1, 1) == link(12.0)


def test_what_pipelines_share_is_divided_among_them():
    """Two pipelines in every host: half of interfaces, bridge, shared fabric and network; a switch keeps its speed."""
    part = cluster_share(CLUSTER, Share(num_pipelines=2, host_splits=(1, 1)))
    quad, mixed = part.servers
    assert (quad.count, mixed.count) == (2, 4)
    assert (quad.nic, mixed.nic, mixed.bridge) == (link(3.0), link(3.0), link(5.0))
    assert [(island.count, island.fabric) for island in mixed.islands] == [(1, link(4.0)), (2, link(8.0))]
    assert (part.network_between(0, 1), part.network_between(1, 1)) == (link(12.0), link(6.0))


def test_path_between_classes_is_divided_among_those_who_share_both_ends():
    """4 pipelines: two in each `quad` host, a `mixed` host for each."""
    part = cluster_share(CLUSTER, Share(num_pipelines=4, host_splits=(2, 4)))
    assert (part.servers[0].nic, part.servers[1].nic) == (link(3.0), link(6.0))
    assert (part.network_between(0, 1), part.network_between(0, 0)) == (link(24.0), link(6.0))


def test_measured_path_is_divided_among_all_who_share_either_end():
    """4 pipelines: two in each `quad` host send through its interface, which the table includes, each to its host.

    Of two pipelines in a host each has half of the path to a host that neither shares: 3 s for 4 bytes, not 8.
    """
    path = Link(bandwidth_bytes_per_s=1.0, table=((4.0, 2.0), (8.0, 3.0)))
    measured = replace(CLUSTER, overrides=(NetworkOverride(servers=("mixed", "quad"), link=path),), network=path)
    part = cluster_share(measured, Share(num_pipelines=4, host_splits=(2, 4)))
    assert part.network_between(0, 1).table == part.network_between(0, 0).table == ((2.0, 2.0), (4.0, 3.0))
    assert part.network_between(1, 1).table == path.table


def test_all_reduces_stay_as_measured():
    """All-reduces run between devices of all pipelines, and a switch has its whole speed for each."""
    table = AllReduceTable(num_devices=4, table=((4.0, 2.0), (8.0, 3.0)))
    island = Island(device_type="gpu", count=4, fabric=link(8.0), shared=True, all_reduce=(table,))
    cluster = replace(ONLY_QUAD, servers=(replace(QUAD, islands=(island,)),))
    part = cluster_share(cluster, Share(num_pipelines=2, host_splits=(1,)))
    assert part.servers[0].islands[0].all_reduce == (table,)


def test_pipelines_take_hosts_and_slices_in_order():
    """Pipeline 3 of 4: the second `quad` host, its second half."""
    names = device_names(ONLY_QUAD, Share(num_pipelines=4, host_splits=(2,)), 3)
    assert names == {"quad/0": "quad-1/2", "quad/1": "quad-1/3"}


def test_slices_are_of_every_island():
    """Pipeline 1 of 2 in each `mixed` host: device 1 of islands 0 .. 1 and 2 .. 5, devices 4 and 5."""
    only_mixed = replace(CLUSTER, servers=(MIXED,), overrides=())
    names = device_names(only_mixed, Share(num_pipelines=2, host_splits=(1,)), 1)
    assert [names[f"mixed-3/{slot}"] for slot in range(3)] == ["mixed-3/1", "mixed-3/4", "mixed-3/5"]


def test_names_of_hosts_stay_apart_in_every_share():
    """Halved, `a-0` would be called like the first host of `a`."""
    island = Island(device_type="gpu", count=1)
    servers = (Server(name="a", islands=(island,), count=4), Server(name="a-0", islands=(island,), count=2))
    with pytest.raises(BadInputError, match="names of servers and hosts must be without repetitions, got 'a-0'"):
        Cluster(name="odd", device_types=kinds(gpu=1.0), servers=servers)


@settings(max_examples=60)
@given(clusters(max_devices=12))
def test_shares_are_disjoint_and_use_every_device(cluster):
    """Every device of a share has the same type in the cluster."""
    kind_of = {device.name: device.device_type for device in cluster.devices()}
    for number in range(1, cluster.num_devices + 1):
        for share in shares_of(cluster, number):
            own = {device.name: device.device_type for device in cluster_share(cluster, share).devices()}
            parts = [device_names(cluster, share, pipeline) for pipeline in range(number)]
            assert sorted(name for part in parts for name in part.values()) == sorted(kind_of)
            assert all({mine: kind_of[name] for mine, name in part.items()} == own for part in parts)
