"""Links between stages and the queues on their way.

Class 0 `mixed`: two hosts with islands of 2 and 1 devices; class 1 `twin`: three hosts of one island.
"""

from dataclasses import replace

import pytest

from stagecut.planner.core.cluster import Cluster, Island, Link, NetworkOverride, Server
from stagecut.planner.core.placement import DeviceGroup, Placement
from stagecut.planner.core.share import Share
from stagecut.planner.cost.links import link_between, link_between_hosts, link_within_host, route_between, sync_route
from tests.catalogue import kinds


def link(bandwidth, latency=0.0):
    return Link(bandwidth_bytes_per_s=bandwidth, latency_s=latency)


ISLANDS = (
    Island(device_type="gpu", count=2, fabric=link(16.0, 0.125), shared=True),
    Island(device_type="gpu", count=1, fabric=link(8.0, 0.25)),
)
MIXED = Server(name="mixed", islands=ISLANDS, count=2, nic=link(4.0, 1.0))
TWIN = Server(name="twin", islands=(Island(device_type="gpu", count=2),), count=3, nic=link(6.0, 2.0))
CLUSTER = Cluster(
    name="two classes", device_types=kinds(gpu=float("inf")), servers=(MIXED, TWIN), network=link(5.0, 0.5)
)


def group(server_class, *hosts, island=0, replicas=1):
    placement = Placement(server_class=server_class, island=island, num_hosts=len(hosts), replicas=replicas)
    return DeviceGroup(placement=placement, hosts=hosts)


def test_inside_an_island_the_fabric_carries():
    assert link_within_host(CLUSTER, 0, 0, 0) == ISLANDS[0].fabric


def test_between_islands_the_bridge_carries():
    bridged = replace(CLUSTER, servers=(replace(MIXED, bridge=link(1.0, 9.0)), TWIN))
    assert link_within_host(bridged, 0, 0, 1) == link_within_host(bridged, 0, 1, 0) == link(1.0, 9.0)


def test_without_a_bridge_the_slower_fabric_carries_with_the_larger_latency():
    assert link_within_host(CLUSTER, 0, 0, 1) == link(8.0, 0.25)


@pytest.mark.parametrize(
    ("sender", "receiver", "bandwidth"),
    [
        ((0, 1), (0, 1), 4.0),
        ((0, 1), (1, 1), 4.0),
        ((1, 1), (1, 1), 5.0),
        ((0, 2), (1, 1), 5.0),
        ((0, 2), (1, 2), 8.0),
        ((1, 3), (0, 1), 4.0),
        ((1, 2), (1, 1), 5.0),
    ],
)
def test_several_hosts_add_up_interfaces_and_network_paths(sender, receiver, bandwidth):
    """The least of m x 4 (or 6) at either end and 5 for each of min(m, m') paths."""
    assert link_between_hosts(CLUSTER, sender, receiver).bandwidth_bytes_per_s == bandwidth


def test_latency_between_hosts_is_that_of_both_interfaces_and_the_network():
    assert link_between_hosts(CLUSTER, (0, 1), (1, 1)).latency_s == 1.0 + 2.0 + 0.5


@pytest.mark.parametrize("names", [("mixed", "twin"), ("twin", "mixed")])
def test_override_replaces_the_network_in_both_directions(names):
    overridden = replace(CLUSTER, overrides=(NetworkOverride(servers=names, link=link(0.5, 7.0)),))
    assert link_between_hosts(overridden, (0, 1), (1, 1)) == link(0.5, 10.0)
    assert link_between_hosts(overridden, (1, 1), (0, 1)) == link(0.5, 10.0)
    assert link_between_hosts(overridden, (1, 1), (1, 1)) == link(5.0, 4.5)


def test_override_of_a_class_with_itself_holds_between_its_hosts():
    overridden = replace(CLUSTER, overrides=(NetworkOverride(servers=("twin", "twin"), link=link(1.0)),))
    assert link_between_hosts(overridden, (1, 1), (1, 1)) == link(1.0, 4.0)
    assert link_between_hosts(overridden, (0, 1), (1, 1)) == link(4.0, 3.5)


MEASURED = Link(bandwidth_bytes_per_s=1.0, table=((2.0, 1.0), (4.0, 2.0)))


@pytest.mark.parametrize(
    ("sender", "receiver", "table"),
    [
        ((0, 1), (1, 1), ((2.0, 1.0), (4.0, 2.0))),
        ((1, 3), (0, 1), ((2.0, 1.0), (4.0, 2.0))),
        ((1, 3), (0, 2), ((4.0, 1.0), (8.0, 2.0))),
    ],
)
def test_measured_path_is_the_whole_way_between_two_hosts(sender, receiver, table):
    """Neither interface counts; m hosts and m' have min(m, m') paths, over each of which a part of the bytes goes."""
    overridden = replace(CLUSTER, overrides=(NetworkOverride(servers=("mixed", "twin"), link=MEASURED),))
    assert link_between_hosts(overridden, sender, receiver).table == table
    assert link_between_hosts(overridden, (1, 1), (1, 1)) == link(5.0, 4.5)


def test_measured_path_still_queues_at_the_interfaces():
    measured = replace(CLUSTER, network=MEASURED)
    assert route_between(measured, group(0, 1), group(0, 0)) == ("mixed-1:nic-out", "mixed-0:nic-in")


def test_without_a_bridge_the_measured_fabric_is_compared_point_by_point():
    """8 bytes/s and 0.25 s: 0.5 s at 2 bytes, 0.75 s at 4, below the 1 and 2 s measured; 1/2 s a byte beyond."""
    measured = replace(MIXED, islands=(replace(ISLANDS[0], fabric=MEASURED), ISLANDS[1]))
    found = link_within_host(replace(CLUSTER, servers=(measured, TWIN)), 0, 0, 1)
    assert [found.transfer_s(size) for size in (1.0, 2.0, 4.0, 8.0)] == [1.0, 1.0, 2.0, 4.0]


def test_stages_of_one_host_use_its_inner_links():
    assert link_between(CLUSTER, group(0, 1), group(0, 1)) == ISLANDS[0].fabric
    assert link_between(CLUSTER, group(0, 1), group(0, 1, island=1)) == link(8.0, 0.25)


def test_hosts_of_one_class_are_still_different_hosts():
    assert link_between(CLUSTER, group(0, 0), group(0, 1)) == link(4.0, 2.5)


def test_stages_on_whole_hosts_use_all_their_interfaces():
    assert link_between(CLUSTER, group(1, 0, 1), group(0, 0)) == link(4.0, 3.5)


@pytest.mark.parametrize(
    ("sender", "receiver", "route"),
    [
        (group(0, 1), group(0, 1), ("mixed-1:fabric-0",)),
        (group(1, 0), group(1, 0), ()),
        (group(0, 1), group(0, 1, island=1), ("mixed-1:bridge",)),
        (group(0, 1), group(0, 0), ("mixed-1:nic-out", "mixed-0:nic-in")),
        (group(1, 1, 2), group(0, 0), ("twin-1:nic-out", "mixed-0:nic-in")),
    ],
)
def test_transfers_queue_for_shared_fabric_bridge_and_interfaces(sender, receiver, route):
    """A switch has no queue."""
    assert route_between(CLUSTER, sender, receiver) == route


def test_single_host_of_a_class_goes_by_the_name_of_the_class():
    alone = replace(CLUSTER, servers=(replace(MIXED, count=1), TWIN))
    assert route_between(alone, group(0, 0), group(1, 2)) == ("mixed:nic-out", "twin-2:nic-in")


@pytest.mark.parametrize(
    ("stage", "route"),
    [
        (group(0, 1), ()),
        (group(0, 1, replicas=2), ("mixed-1:fabric-0",)),
        (group(1, 1, replicas=2), ()),
        (group(1, 1, 2, replicas=4), ("twin-1:nic-in", "twin-1:nic-out")),
    ],
)
def test_all_reduce_occupies_what_its_ring_passes(stage, route):
    """One replica reduces nothing; a switch has no queue; several hosts use both directions of their interfaces."""
    assert sync_route(CLUSTER, stage) == route


def test_pipelines_reduce_over_what_lies_between_them():
    """Pipelines on hosts of their own use the interfaces, pipelines on the same hosts their fabric."""
    apart = Share(num_pipelines=2, host_splits=(2, 1))
    together = Share(num_pipelines=2, host_splits=(1, 1))
    assert sync_route(CLUSTER, group(0, 1), apart) == ("mixed-1:nic-in", "mixed-1:nic-out")
    assert sync_route(CLUSTER, group(0, 1), together) == ("mixed-1:fabric-0",)
