"""Collective operations, in numbers derived by hand."""

import numpy as np
import pytest

from planner.core.cluster import UNLIMITED, Cluster, Island, Link, Server
from planner.core.placement import Placement
from planner.cost.collectives import ring_all_reduce_s, ring_link
from tests.catalogue import kinds

FABRIC = Link(bandwidth_bytes_per_s=8.0, latency_s=0.25)
NIC = Link(bandwidth_bytes_per_s=4.0, latency_s=1.0)


def cluster(*, shared=False, fabric=FABRIC, nic=NIC, network=UNLIMITED):
    """Three hosts of four devices each."""
    island = Island(device_type="gpu", count=4, fabric=fabric, shared=shared)
    server = Server(name="host", islands=(island,), count=3, nic=nic)
    return Cluster(name="three", device_types=kinds(gpu=float("inf")), servers=(server,), network=network)


def placement(replicas, *, num_hosts=1):
    return Placement(server_class=0, island=0, num_hosts=num_hosts, replicas=replicas)


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
