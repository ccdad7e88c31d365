"""Conversions over several axes, in numbers derived by hand."""

import pytest

from stagecut.planner.core.cluster import Link
from stagecut.planner.sharding.collectives import Collective
from stagecut.planner.sharding.conversions import conversion
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, Shard

HOSTS = Mesh(
    axes=(
        MeshAxis(size=2, link=Link(bandwidth_bytes_per_s=1.0), between_hosts=True),
        MeshAxis(size=4, link=Link(bandwidth_bytes_per_s=100.0)),
    )
)
"""Two hosts of four devices with a slow network."""
ONE_HOST = Mesh(axes=tuple(MeshAxis(size=size, link=Link(bandwidth_bytes_per_s=100.0)) for size in (2, 4)))


def steps_of(mesh, source, target):
    return [(step.axis, step.collective, step.num_bytes) for step in conversion(mesh, source, target, num_bytes=80.0)]


def test_sums_are_scattered_inside_hosts_before_they_cross_between_them():
    """All 80 inside, and the 20 that are left between."""
    steps = steps_of(HOSTS, (PARTIAL, PARTIAL), (Shard(0), Shard(0)))
    assert steps == [(1, Collective.REDUCE_SCATTER, 80.0), (0, Collective.REDUCE_SCATTER, 20.0)]


def test_parts_are_gathered_between_hosts_before_inside():
    steps = steps_of(HOSTS, (Shard(0), Shard(0)), (REPLICATE, REPLICATE))
    assert steps == [(0, Collective.ALL_GATHER, 20.0), (1, Collective.ALL_GATHER, 80.0)]


def test_inside_a_host_later_axes_divide_the_parts_of_earlier_ones():
    steps = steps_of(ONE_HOST, (Shard(0), Shard(0)), (REPLICATE, REPLICATE))
    assert steps == [(1, Collective.ALL_GATHER, 40.0), (0, Collective.ALL_GATHER, 80.0)]


@pytest.mark.parametrize("mesh", [HOSTS, ONE_HOST])
def test_nothing_becomes_partial(mesh):
    assert conversion(mesh, (REPLICATE, Shard(0)), (PARTIAL, Shard(0)), num_bytes=80.0) is None
    assert conversion(mesh, (PARTIAL, Shard(0)), (PARTIAL, REPLICATE), num_bytes=80.0) is not None
