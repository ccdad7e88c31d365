"""Device groups on the next free devices."""

import pytest

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.network.device_groups import name_devices
from stagecut.planner.network.host_filling import GroupSize, fill_hosts
from tests.catalogue import kinds

CLUSTER = Cluster(
    name="mixed",
    device_types=kinds(fast=1.0, slow=1.0),
    servers=(
        Server(name="a", count=3, islands=(Island(device_type="fast", count=4),)),
        Server(name="b", islands=(Island(device_type="slow", count=1), Island(device_type="fast", count=2))),
    ),
)


def filled(*sizes, order=(0, 1)):
    groups = fill_hosts(CLUSTER, order, [GroupSize(replicas=r, tensor_parallel=t) for r, t in sizes])
    return name_devices(CLUSTER, groups)


def test_groups_take_the_next_devices_host_after_host():
    assert filled((1, 2), (1, 1), (1, 1), (2, 1)) == [
        ("a-0/0", "a-0/1"),
        ("a-0/2",),
        ("a-0/3",),
        ("a-1/0", "a-1/1"),
    ]


def test_a_group_that_the_rest_of_a_host_cannot_hold_begins_the_next_one():
    """After 3 of 4 devices a group of 2 leaves one idle; the small island of b is passed over by it as well."""
    assert filled((1, 1), (1, 1), (1, 1), (1, 2))[-1] == ("a-1/0", "a-1/1")
    assert filled((1, 2), order=(1,)) == [("b/1", "b/2")]


def test_a_group_larger_than_a_host_takes_whole_ones():
    devices = filled((1, 1), (2, 4))
    assert devices[1] == tuple(f"a-{host}/{slot}" for host in (1, 2) for slot in range(4))


def test_classes_are_filled_in_the_order_given():
    assert filled((1, 1), (1, 1), (1, 1), (1, 1), order=(1, 0)) == [("b/0",), ("b/1",), ("b/2",), ("a-0/0",)]


@pytest.mark.parametrize(
    "sizes",
    [
        [(1, 2)] * 8,  # seven pairs: two on each a, one on b
        [(1, 8)],  # a replica over two hosts
        [(6, 1)],  # one host and a half
        [(16, 1)],  # four hosts of three
    ],
)
def test_too_few_devices_are_refused(sizes):
    with pytest.raises(BadInputError, match=r"device group .* needs"):
        filled(*sizes)
