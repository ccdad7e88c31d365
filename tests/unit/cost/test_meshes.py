"""Meshes of the devices of a replica, in numbers derived by hand."""

import math

import numpy as np
import pytest

from stagecut.planner.core.cluster import UNLIMITED, AllReduceTable, Cluster, Island, Link, Server
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.share import Share, cluster_share
from stagecut.planner.cost.collectives import exchange_of
from stagecut.planner.cost.meshes import mesh_of, meshes_of
from stagecut.planner.sharding.collectives import Collective
from tests.catalogue import kinds

FABRIC = Link(bandwidth_bytes_per_s=8.0, latency_s=0.25)
NIC = Link(bandwidth_bytes_per_s=4.0, latency_s=1.0)
QUAD = AllReduceTable(num_devices=4, table=((2.0, 4.0), (4.0, 8.0)))


def cluster(*, count=8, shared=False, network=UNLIMITED, all_reduce=()):
    """Four hosts of eight devices each."""
    island = Island(device_type="gpu", count=count, fabric=FABRIC, shared=shared, all_reduce=all_reduce)
    server = Server(name="host", islands=(island,), count=4, nic=NIC)
    return Cluster(name="four", device_types=kinds(gpu=math.inf), servers=(server,), network=network)


def placement(devices, *, replicas=1, num_hosts=1):
    return Placement(server_class=0, island=0, num_hosts=num_hosts, replicas=replicas, tensor_parallel=devices)


def sizes_of(meshes):
    return [mesh.sizes for mesh in meshes]


def test_devices_of_a_host_form_every_grid_of_rising_sizes():
    assert sizes_of(meshes_of(cluster(), placement(8))) == [(8,), (2, 4), (2, 2, 2)]
    assert sizes_of(meshes_of(cluster(count=12), placement(12))) == [(12,), (2, 6), (3, 4), (2, 2, 3)]


def test_a_device_alone_is_a_mesh_without_axes():
    assert sizes_of(meshes_of(cluster(), placement(1))) == [()]


def test_a_mesh_has_no_more_axes_than_allowed():
    assert sizes_of(meshes_of(cluster(), placement(8), max_axes=1)) == [(8,)]


def test_axes_between_hosts_come_before_those_inside():
    """Four hosts are 4 or 2 x 2; their devices 8, 2 x 4 or 2 x 2 x 2; at most three axes in all."""
    meshes = meshes_of(cluster(), placement(32, num_hosts=4))
    assert sizes_of(meshes) == [(4, 8), (2, 2, 8), (4, 2, 4)]
    assert sizes_of(meshes_of(cluster(count=1), placement(4, num_hosts=4))) == [(4,), (2, 2)]


def test_replicas_on_hosts_of_their_own_have_meshes_inside_a_host():
    assert sizes_of(meshes_of(cluster(), placement(8, replicas=4, num_hosts=4))) == [(8,), (2, 4), (2, 2, 2)]


def test_a_switch_gives_every_axis_its_full_speed():
    (mesh,) = (mesh for mesh in meshes_of(cluster(), placement(8)) if mesh.sizes == (2, 4))
    assert [axis.link for axis in mesh.axes] == [FABRIC, FABRIC]


@pytest.mark.parametrize(("devices", "replicas", "bandwidth"), [(8, 1, 1.0), (4, 1, 2.0), (4, 2, 1.0)])
def test_all_rings_of_an_axis_pass_through_the_root_of_a_shared_fabric(devices, replicas, bandwidth):
    """Every device of the stage sends at once: 8 bytes/s over 4 or 8."""
    for mesh in meshes_of(cluster(shared=True), placement(devices, replicas=replicas)):
        assert {axis.link for axis in mesh.axes} == {Link(bandwidth_bytes_per_s=bandwidth, latency_s=0.25)}


def test_devices_of_a_host_share_its_interface():
    """Eight rings, one for each device: 4 / 8 bytes/s and 1 + 1 s; the axis inside has the fabric."""
    mesh = mesh_of(cluster(), placement(16, num_hosts=2), (2, 8))
    assert mesh.axes[0].link == Link(bandwidth_bytes_per_s=0.5, latency_s=2.0)
    assert mesh.axes[1].link == FABRIC


def test_a_slow_network_limits_the_axis_between_hosts():
    network = Link(bandwidth_bytes_per_s=3.0, latency_s=0.5)
    mesh = mesh_of(cluster(count=1, network=network), placement(4, num_hosts=4), (4,))
    assert mesh.axes[0].link == Link(bandwidth_bytes_per_s=3.0, latency_s=2.5)


@pytest.mark.parametrize(("shared", "replicas", "seconds"), [(False, 1, 4.0), (True, 1, 8.0), (True, 2, 16.0)])
def test_measured_all_reduces_hold_for_the_axis_of_as_many_devices(shared, replicas, seconds):
    """4 s for 2 bytes at first; on a shared root all groups of four run at once: 8 devices as 4 bytes, and 16 as 8."""
    whole = cluster(count=16, shared=shared, all_reduce=(QUAD,))
    mesh = mesh_of(whole, placement(8, replicas=replicas), (2, 4))
    assert mesh.axes[0].all_reduce is None
    assert mesh.axes[1].seconds(Collective.ALL_REDUCE, 2.0) == seconds
    assert mesh.axes[1].seconds(Collective.ALL_GATHER, 2.0) == seconds / 2


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("tables", [(), (QUAD,)])
@pytest.mark.parametrize("pipelines", [1, 2])
def test_an_all_reduce_over_one_axis_is_that_of_tensor_parallelism(shared, tables, pipelines):
    whole, share = cluster(shared=shared, all_reduce=tables), Share()
    if pipelines > 1:
        share = Share(num_pipelines=pipelines, host_splits=(1,))
    part, chosen = cluster_share(whole, share), placement(4)
    (axis,) = mesh_of(part, chosen, (4,), share).axes
    sizes = np.array([0.0, 1.0, 3.0, 100.0])
    expected = exchange_of(part, chosen, share).seconds(sizes)
    assert [axis.seconds(Collective.ALL_REDUCE, size) for size in sizes] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("sizes", "message"), [((2, 3), "a grid of 8 devices"), ((3,), "got '3'"), ((), "got ''")])
def test_a_mesh_that_is_not_a_grid_of_the_devices_is_refused(sizes, message):
    with pytest.raises(BadInputError, match=message):
        mesh_of(cluster(), placement(8), sizes)


@pytest.mark.parametrize("sizes", [(32,), (8, 4), (16, 2)])
def test_an_axis_partly_between_hosts_is_refused(sizes):
    with pytest.raises(BadInputError, match="axes between 4 hosts, then axes of the 8 devices in each"):
        mesh_of(cluster(), placement(32, num_hosts=4), sizes)


def test_replicas_of_one_and_a_half_hosts_are_refused():
    """Two replicas of 12 devices on three hosts of eight."""
    with pytest.raises(BadInputError, match="a part of the 8 on a host, or all of several hosts"):
        meshes_of(cluster(), placement(12, replicas=2, num_hosts=3))


def test_sizes_in_another_order_are_a_mesh_too():
    assert mesh_of(cluster(), placement(8), (4, 2)).sizes == (4, 2)
