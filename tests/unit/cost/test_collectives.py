"""Collective operations, in numbers derived by hand."""

import numpy as np
import pytest

from planner.core.cluster import UNLIMITED, Cluster, Island, Link, Server
from planner.core.placement import Placement
from planner.core.share import Share, cluster_share
from planner.cost.collectives import group_link, ring_all_reduce_s, ring_link
from tests.catalogue import kinds

FABRIC = Link(bandwidth_bytes_per_s=8.0, latency_s=0.25)
NIC = Link(bandwidth_bytes_per_s=4.0, latency_s=1.0)


def cluster(*, shared=False, fabric=FABRIC, nic=NIC, network=UNLIMITED):
    """Three hosts of four devices each."""
    island = Island(device_type="gpu", count=4, fabric=fabric, shared=shared)
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
