"""Device groups and the names of their devices."""

import pytest

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.placement import Placement
from stagecut.planner.network.device_groups import PlacedGroup, groups_host_by_host, name_devices
from tests.catalogue import kinds

ISLANDS = (Island(device_type="gpu", count=2), Island(device_type="gpu", count=1))
CLUSTER = Cluster(
    name="small",
    device_types=kinds(gpu=float("inf")),
    servers=(
        Server(name="mixed", islands=ISLANDS, count=2),
        Server(name="twin", islands=(Island(device_type="gpu", count=2),), count=3),
    ),
)


def group(server_class, *, island=0, opens=True, num_hosts=1, replicas=1):
    placement = Placement(server_class=server_class, island=island, num_hosts=num_hosts, replicas=replicas)
    return PlacedGroup(placement=placement, opens=opens)


def test_hosts_and_devices_are_taken_in_order():
    groups = [group(0), group(0, opens=False), group(0), group(1, replicas=2)]
    assert name_devices(CLUSTER, groups) == [
        ("mixed-0/0",),
        ("mixed-0/1",),
        ("mixed-1/0",),
        ("twin-0/0", "twin-0/1"),
    ]


def test_devices_of_a_later_island_are_numbered_after_those_before():
    assert name_devices(CLUSTER, [group(0), group(0, island=1, opens=False)]) == [("mixed-0/0",), ("mixed-0/2",)]


def test_whole_hosts_are_taken_together():
    groups = [group(1, replicas=2), group(1, num_hosts=2, replicas=4)]
    assert name_devices(CLUSTER, groups) == [
        ("twin-0/0", "twin-0/1"),
        ("twin-1/0", "twin-1/1", "twin-2/0", "twin-2/1"),
    ]


@pytest.mark.parametrize(
    "groups",
    [
        [group(0), group(0), group(0)],
        [group(1), group(1), group(1, num_hosts=2, replicas=4)],
        [group(0, island=1), group(0, island=1, opens=False)],
        [group(0), group(0, replicas=2, opens=False)],
    ],
    ids=["a third host", "four hosts of three", "a second device of one", "three devices of two"],
)
def test_what_the_cluster_lacks_is_not_named(groups):
    assert name_devices(CLUSTER, groups) is None


def test_equal_groups_are_placed_host_by_host():
    """The class of twins first; pairs leave the third device of each mixed host idle, single devices none."""
    pairs = name_devices(CLUSTER, groups_host_by_host(CLUSTER, (1, 0), replicas=2))
    assert pairs == [(f"{host}/0", f"{host}/1") for host in ("twin-0", "twin-1", "twin-2", "mixed-0", "mixed-1")]
    singles = name_devices(CLUSTER, groups_host_by_host(CLUSTER, (0,)))
    assert singles == [(f"{host}/{device}",) for host in ("mixed-0", "mixed-1") for device in range(3)]
