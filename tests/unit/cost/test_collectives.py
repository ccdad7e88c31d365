"""Collective operations, in numbers derived by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecut.planner.core.cluster import UNLIMITED, AllReduceTable, Cluster, Island, Link, Server
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.share import Share, cluster_share
from stagecut.planner.cost.collectives import (
    AllReduce,
    exchange_of,
    gradient_sync_of,
    group_link,
    ring_all_reduce_s,
    ring_link,
)
from tests.catalogue import kinds
from tests.property.strategies import points

FABRIC = Link(bandwidth_bytes_per_s=8.0, latency_s=0.25)
NIC = Link(bandwidth_bytes_per_s=4.0, latency_s=1.0)


def cluster(*, shared=False, fabric=FABRIC, nic=NIC, network=UNLIMITED, all_reduce=()):
    """Three hosts of four devices each."""
    island = Island(device_type="gpu", count=4, fabric=fabric, shared=shared, all_reduce=all_reduce)
    server = Server(name="host", islands=(island,), count=3, nic=nic)
    return Cluster(name="three", device_types=kinds(gpu=float("inf")), servers=(server,), network=network)


def placement(replicas, *, num_hosts=1, tensor_parallel=1):
    return Placement(server_class=0, island=0, num_hosts=num_hosts, replicas=replicas, tensor_parallel=tensor_parallel)


def test_ring_of_four_takes_six_steps_of_a_quarter():
    """6 steps of 8 / 4 bytes at 2 bytes/s and 0.5 s latency: 6 x 1.5 = 9; twice the bytes: 6 x 2.5 = 15."""
    seconds = ring_all_reduce_s(np.array([8.0, 16.0]), 4, Link(bandwidth_bytes_per_s=2.0, latency_s=0.5))
    assert seconds.tolist() == [9.0, 15.0]


@pytest.mark.parametrize("link", [UNLIMITED, Link(bandwidth_bytes_per_s=1.0, latency_s=5.0)])
def test_a_single_rank_has_nothing_to_reduce(link):
    assert ring_all_reduce_s(np.array([8.0]), 1, link).tolist() == [0.0]


def test_unlimited_link_leaves_the_latencies():
    """2 ranks: 2 steps of 3 s."""
    assert ring_all_reduce_s(np.array([8.0]), 2, Link(bandwidth_bytes_per_s=np.inf, latency_s=3.0)).tolist() == [6.0]


def test_switch_gives_every_pair_its_full_bandwidth():
    assert ring_link(cluster(), placement(4)) == FABRIC


@pytest.mark.parametrize(("replicas", "bandwidth"), [(1, 8.0), (2, 4.0), (4, 2.0)])
def test_shared_fabric_is_divided_among_the_replicas(replicas, bandwidth):
    link = ring_link(cluster(shared=True), placement(replicas))
    assert link == Link(bandwidth_bytes_per_s=bandwidth, latency_s=0.25)


def test_ring_over_hosts_is_as_slow_as_its_interfaces():
    """Interfaces at both ends, no latency between: 1 + 1 s per step."""
    assert ring_link(cluster(), placement(8, num_hosts=2)) == Link(bandwidth_bytes_per_s=4.0, latency_s=2.0)


def test_ring_over_hosts_is_as_slow_as_the_network():
    network = Link(bandwidth_bytes_per_s=3.0, latency_s=0.5)
    link = ring_link(cluster(network=network), placement(12, num_hosts=3))
    assert link == Link(bandwidth_bytes_per_s=3.0, latency_s=2.5)


def test_ring_over_hosts_is_as_slow_as_a_shared_fabric_inside():
    """Four devices of each host share 8 bytes/s, below the interface's 4; and 5 s are above 2."""
    fabric = Link(bandwidth_bytes_per_s=8.0, latency_s=5.0)
    link = ring_link(cluster(shared=True, fabric=fabric), placement(8, num_hosts=2))
    assert link == Link(bandwidth_bytes_per_s=2.0, latency_s=5.0)


@pytest.mark.parametrize(("replicas", "degree", "bandwidth"), [(1, 2, 4.0), (2, 2, 2.0), (1, 4, 2.0)])
def test_shared_fabric_is_divided_among_all_devices_of_the_stage(replicas, degree, bandwidth):
    """The rings inside the replicas run at once, and so do those between them."""
    chosen = placement(replicas, tensor_parallel=degree)
    link = Link(bandwidth_bytes_per_s=bandwidth, latency_s=0.25)
    assert group_link(cluster(shared=True), chosen) == ring_link(cluster(shared=True), chosen) == link
    assert group_link(cluster(), chosen) == FABRIC


def test_rings_of_shared_replicas_divide_the_interfaces():
    """Each of two rings has half of an interface, 2 bytes/s, and of the network."""
    chosen = placement(4, num_hosts=2, tensor_parallel=2)
    assert ring_link(cluster(), chosen) == Link(bandwidth_bytes_per_s=2.0, latency_s=2.0)
    network = Link(bandwidth_bytes_per_s=3.0, latency_s=0.5)
    assert ring_link(cluster(network=network), chosen).bandwidth_bytes_per_s == 1.5


def ring_in_share(whole, share, chosen):
    return ring_link(cluster_share(whole, share), chosen, share)


def test_pipelines_on_hosts_of_their_own_meet_between_the_hosts():
    """Three pipelines with a host each: a single device of each takes the whole interface."""
    share = Share(num_pipelines=3, host_splits=(3,))
    assert ring_in_share(cluster(), share, placement(1)) == Link(bandwidth_bytes_per_s=4.0, latency_s=2.0)


def test_pipelines_that_share_hosts_form_one_ring_through_the_interface():
    """Two pipelines have half of each of three hosts; the ring over both leaves and enters each host once."""
    share = Share(num_pipelines=2, host_splits=(1,))
    assert ring_in_share(cluster(), share, placement(6, num_hosts=3)).bandwidth_bytes_per_s == 4.0
    assert ring_in_share(cluster(), share, placement(3, num_hosts=3, tensor_parallel=2)).bandwidth_bytes_per_s == 2.0


def test_pipelines_inside_a_host_divide_a_shared_fabric():
    """All four devices of a host take part, two of each pipeline: 8 / 4 bytes/s."""
    share = Share(num_pipelines=2, host_splits=(1,))
    link = Link(bandwidth_bytes_per_s=2.0, latency_s=0.25)
    assert ring_in_share(cluster(shared=True), share, placement(2)) == link
    assert ring_in_share(cluster(), share, placement(2)) == FABRIC


@pytest.mark.parametrize(("degree", "bandwidth"), [(1, 4.0), (2, 2.0)])
def test_ring_with_one_replica_on_each_host_uses_no_fabric(degree, bandwidth):
    """However slow: 4 bytes/s of the interface for each of the rings, 1 + 1 s."""
    slow = Link(bandwidth_bytes_per_s=0.5, latency_s=9.0)
    share = Share(num_pipelines=3, host_splits=(3,))
    link = ring_in_share(cluster(fabric=slow), share, placement(1, tensor_parallel=degree))
    assert link == Link(bandwidth_bytes_per_s=bandwidth, latency_s=2.0)
    both = ring_in_share(cluster(fabric=slow), share, placement(2, tensor_parallel=degree))
    assert both.bandwidth_bytes_per_s == 0.5


BENT = Link(bandwidth_bytes_per_s=1.0, table=((2.0, 1.0), (4.0, 2.0), (8.0, 3.0)))
"""1 s up to 2 bytes, then 1/2 s a byte up to 4, then 1/4."""
PAIR, QUAD = (AllReduceTable(num_devices=number, table=((2.0, number), (4.0, 2.0 * number))) for number in (2, 4))


def test_ring_over_measured_links_takes_its_steps_from_the_curve():
    """6 steps of 12 / 4 bytes, 1.5 s each, and of 4 / 4, 1 s."""
    assert ring_all_reduce_s(np.array([12.0, 4.0]), 4, BENT).tolist() == [9.0, 6.0]


def test_ring_over_hosts_takes_the_measured_path_in_place_of_the_interfaces():
    """However slow these; the fabric's 0.25 s + 1/8 s a byte is below the path."""
    link = ring_link(cluster(network=BENT, nic=Link(bandwidth_bytes_per_s=0.5)), placement(8, num_hosts=2))
    assert [link.transfer_s(size) for size in (0.0, 3.0, 8.0, 20.0)] == [1.0, 1.5, 3.0, 6.0]


def test_rings_of_shared_replicas_divide_the_measured_path():
    """Two rings at once: 3 bytes each take what 6 alone take."""
    link = ring_link(cluster(network=BENT), placement(4, num_hosts=2, tensor_parallel=2))
    assert link.transfer_s(3.0) == BENT.transfer_s(6.0)


def test_shared_measured_fabric_is_divided_among_the_replicas():
    """Four at once: 1 byte each takes what 4 take alone."""
    assert ring_link(cluster(shared=True, fabric=BENT), placement(4)).transfer_s(1.0) == 2.0


@pytest.mark.parametrize(("replicas", "seconds"), [(1, 0.0), (2, 3.0), (3, 4 * (1 / 8 + 0.25)), (4, 6.0)])
def test_gradients_are_reduced_as_measured_among_that_many_devices(replicas, seconds):
    """3 bytes: 1.5 n s where there is a table, a ring over the fabric elsewhere, 4 steps of 1 byte."""
    found = gradient_sync_of(cluster(all_reduce=(PAIR, QUAD)), placement(replicas))
    assert found.seconds(np.array([3.0])) == pytest.approx(seconds)


def test_measured_all_reduce_is_of_one_host_and_whole_replicas():
    """Other groups use rings: those between hosts, and those of replicas that several devices share."""
    measured = cluster(all_reduce=(PAIR, QUAD))
    assert gradient_sync_of(measured, placement(2, num_hosts=2)).measured is None
    assert gradient_sync_of(measured, placement(2, tensor_parallel=2)).measured is None


def test_pipelines_of_one_host_reduce_as_measured_among_all_their_replicas():
    share = Share(num_pipelines=2, host_splits=(1,))
    part = cluster_share(cluster(all_reduce=(PAIR, QUAD)), share)
    assert gradient_sync_of(part, placement(2), share).measured == QUAD
    apart = Share(num_pipelines=3, host_splits=(3,))
    assert gradient_sync_of(cluster_share(cluster(all_reduce=(PAIR,)), apart), placement(2), apart).measured is None


def test_devices_that_share_a_replica_exchange_as_measured():
    """All replicas at once: over a switch as alone, over a shared fabric of two replicas as with twice the bytes."""
    chosen = placement(2, tensor_parallel=2)
    assert exchange_of(cluster(all_reduce=(PAIR,)), chosen).seconds(np.array([2.0])) == 2.0
    assert exchange_of(cluster(all_reduce=(PAIR,), shared=True), chosen).seconds(np.array([2.0])) == 4.0
    assert exchange_of(cluster(all_reduce=(QUAD,)), chosen) == AllReduce(num_ranks=2, link=FABRIC)


def test_pipelines_in_a_host_exchange_over_its_shared_fabric_at_once():
    """Two pipelines of one replica on two devices each."""
    share = Share(num_pipelines=2, host_splits=(1,))
    part = cluster_share(cluster(all_reduce=(PAIR,), shared=True), share)
    assert exchange_of(part, placement(1, tensor_parallel=2), share).seconds(np.array([2.0])) == 4.0


@pytest.mark.parametrize(
    ("all_reduce", "num_bytes", "seconds"),
    [
        (AllReduce(num_ranks=2, link=FABRIC), 8.0, 1.5),
        (AllReduce(num_ranks=2, link=FABRIC), 0.0, 0.5),
        (AllReduce(num_ranks=1, link=FABRIC), 8.0, 0.0),
        (AllReduce(num_ranks=2, link=BENT), 12.0, 2 * 2.5),
        (AllReduce(num_ranks=2, link=FABRIC, measured=AllReduceTable(num_devices=2, table=((2, 1), (4, 4)))), 8.0, 4.0),
    ],
)
def test_parts_take_no_less_than_at_the_best_rate(all_reduce, num_bytes, seconds):
    """Bent upwards, 1 s for 2 bytes but 4 for 4: four parts of 2. Else the whole at once, 2 steps of half the bytes."""
    assert all_reduce.least_s(num_bytes) == pytest.approx(seconds)


@given(points(least=2), st.integers(2, 4), st.lists(st.integers(0, 12), min_size=1, max_size=5), st.booleans())
def test_no_parts_take_less_than_the_least(table, num_ranks, parts, measured):
    link = Link(bandwidth_bytes_per_s=1.0, table=table)
    of_devices = AllReduceTable(num_devices=num_ranks, table=table) if measured else None
    all_reduce = AllReduce(num_ranks=num_ranks, link=link, measured=of_devices)
    taken_s = all_reduce.seconds(np.array(parts, dtype=float)).sum()
    assert all_reduce.least_s(float(sum(parts))) <= taken_s * (1 + 1e-12)
