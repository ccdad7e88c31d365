"""Conversions between placements really lead there, send what is said, and are the fastest."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Link
from stagecut.planner.sharding.collectives import Collective
from stagecut.planner.sharding.conversions import conversion
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, Shard
from tests.mesh_arrays import apply_step, collect, distribute

SHAPE = (12, 24)
NUM_BYTES = float(math.prod(SHAPE))
"""One for each element, so that elements are bytes."""
LINKS = st.builds(
    Link, bandwidth_bytes_per_s=st.sampled_from((1.0, 8.0, math.inf)), latency_s=st.sampled_from((0.0, 1.0, 50.0))
)


@st.composite
def meshes(draw, *, most_axes=3):
    sizes = draw(st.lists(st.sampled_from((2, 3)), min_size=1, max_size=most_axes))
    assume(math.prod(sizes) in (2, 3, 4, 6, 12))
    num_between = draw(st.integers(0, len(sizes)))
    return Mesh(
        axes=tuple(
            MeshAxis(size=size, link=draw(LINKS), between_hosts=axis < num_between) for axis, size in enumerate(sizes)
        )
    )


def placements(mesh):
    own = st.sampled_from((Shard(0), Shard(1), REPLICATE, PARTIAL))
    return st.tuples(*(own for _ in mesh.axes))


def reachable(source, target):
    """Nothing becomes Partial."""
    return all(there is not PARTIAL or here is PARTIAL for here, there in zip(source, target, strict=True))


@given(meshes(), st.data())
@settings(max_examples=90)
def test_the_steps_of_a_conversion_lead_there_and_send_what_they_say(mesh, data):
    source, target = data.draw(placements(mesh)), data.draw(placements(mesh))
    steps = conversion(mesh, source, target, num_bytes=NUM_BYTES)
    assert (steps is not None) == reachable(source, target)
    assume(steps)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    array, now = random.standard_normal(SHAPE), source
    held = distribute(array, source, mesh.sizes, random, order=mesh.division_order)
    for step in steps:
        held, now, num_sent = apply_step(held, now, step, mesh.sizes)
        assert num_sent == pytest.approx(step.sent_bytes(mesh))
    assert now == target
    np.testing.assert_allclose(collect(held, target, mesh.sizes, order=mesh.division_order), array, atol=1e-9)
    for device, part in distribute(array, target, mesh.sizes, random, order=mesh.division_order).items():
        if PARTIAL not in target:
            np.testing.assert_allclose(held[device], part, atol=1e-9)


def changes(mesh, now):
    """Every step that is right whatever the order of steps is: written anew, from the meaning of the placements."""
    local = NUM_BYTES / mesh.parts(now)
    for axis, to in itertools.product(range(len(now)), (Shard(0), Shard(1), REPLICATE)):
        own, size = now[axis], mesh.sizes[axis]
        later = [now[other] for other in mesh.division_order[mesh.division_order.index(axis) + 1 :]]
        if own == to or any(isinstance(inner, Shard) and inner in (own, to) for inner in later):
            continue
        if own is PARTIAL:
            collective, num_bytes = (
                (Collective.ALL_REDUCE, local) if to is REPLICATE else (Collective.REDUCE_SCATTER, local)
            )
        elif own is REPLICATE:
            collective, num_bytes = None, 0.0
        else:
            collective, num_bytes = (
                (Collective.ALL_GATHER, local * size) if to is REPLICATE else (Collective.ALL_TO_ALL, local)
            )
        seconds = 0.0 if collective is None else mesh.axes[axis].seconds(collective, num_bytes)
        yield (*now[:axis], to, *now[axis + 1 :]), seconds


def parts(mesh, now, dim):
    return math.prod(size for size, own in zip(mesh.sizes, now, strict=True) if own == Shard(dim))


def stays_even(mesh, now, ends):
    """Whether the parts of each dimension are known to be even: one of the ends has a multiple of as many."""
    return all(any(parts(mesh, end, dim) % parts(mesh, now, dim) == 0 for end in ends) for dim in (0, 1))


def fastest(mesh, source, target):
    """Least seconds of all sequences of steps: relaxed until nothing changes (Bellman, 1958)."""
    least, changed = {source: 0.0}, True
    while changed:
        changed = False
        for now, so_far in tuple(least.items()):
            for after, seconds in changes(mesh, now):
                even = stays_even(mesh, after, (source, target))
                if even and so_far + seconds < least.get(after, math.inf) * (1 - 1e-12):
                    least[after], changed = so_far + seconds, True
    return least[target]


@given(meshes(most_axes=2), st.data())
@settings(max_examples=60)
def test_no_sequence_of_steps_is_faster(mesh, data):
    source, target = data.draw(placements(mesh)), data.draw(placements(mesh))
    assume(reachable(source, target))
    steps = conversion(mesh, source, target, num_bytes=NUM_BYTES)
    assert sum(step.seconds(mesh) for step in steps) == pytest.approx(fastest(mesh, source, target))


@given(meshes(), st.data())
@settings(max_examples=35)
def test_twice_the_bytes_never_take_less_and_never_twice_the_time(mesh, data):
    source, target = data.draw(placements(mesh)), data.draw(placements(mesh))
    assume(reachable(source, target))
    once, twice = (
        sum(step.seconds(mesh) for step in conversion(mesh, source, target, num_bytes=num_bytes))
        for num_bytes in (NUM_BYTES, 2 * NUM_BYTES)
    )
    assert once <= twice * (1 + 1e-12)
    assert twice <= 2 * once * (1 + 1e-12)
