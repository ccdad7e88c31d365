"""Bytes and collectives of weights, counted on arrays that an emulated mesh holds, gathers and sums."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import UNLIMITED
from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.operators.operators import Weight
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP, Strategy, WeightStorage
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.operator_costs import weight_costs
from stagecut.planner.sharding.placements import PARTIAL
from stagecut.planner.sharding.strategies import weight_gradient_placements, weight_placements
from tests.mesh_arrays import collect, distribute, ring_all_gather, ring_reduce_scatter

OPTIMIZER = Optimizer(name="test", weight_bytes=2.0, gradient_bytes=3.0, state_bytes=5.0)
WEIGHT = Weight(name="w", dims=("out", "in"), num_bytes=2.0 * 12 * 12)
"""Of 12 x 12 parameters of 2 bytes."""
SPLITS = ("out", "in", "sample", PARTIAL_SUMS, WHOLE_LOOP)


@st.composite
def cases(draw):
    sizes = draw(st.sampled_from(((2,), (3,), (2, 2), (2, 3), (3, 2), (2, 2, 3))))
    splits = tuple(draw(st.sampled_from(SPLITS)) for _ in sizes)
    mesh = Mesh(axes=tuple(MeshAxis(size=size, link=UNLIMITED) for size in sizes))
    return mesh, Strategy(splits=splits, storage=draw(st.sampled_from(tuple(WeightStorage))))


def groups_along(held, axis, size):
    for device in held:
        if device[axis] == 0:
            yield [(*device[:axis], index, *device[axis + 1 :]) for index in range(size)]


def reduce_scatter(held, axis, size):
    """What each device has of the sums along an axis, and the number of elements that it sent."""
    after, num_sent = {}, 0
    for group in groups_along(held, axis, size):
        sums, num_sent = ring_reduce_scatter([np.split(held[device], size) for device in group])
        after.update(zip(group, sums, strict=True))
    return after, num_sent


def all_gather(held, axis, size):
    after, num_sent = {}, 0
    for group in groups_along(held, axis, size):
        chunks, num_sent = ring_all_gather([held[device] for device in group])
        after.update((device, np.concatenate(own)) for device, own in zip(group, chunks, strict=True))
    return after, num_sent


def sent_per_parameter(mesh, strategy):
    """Elements that a device sends to sum gradients into shards and to gather them; sums are checked on the way."""
    random = np.random.default_rng(0)
    of_weight = weight_gradient_placements(WEIGHT, strategy.splits)
    gradient = random.standard_normal((12, 12))
    held = {device: part.ravel() for device, part in distribute(gradient, of_weight, mesh.sizes, random).items()}
    axes = [axis for axis, own in enumerate(of_weight) if own is PARTIAL]
    num_scattered = num_gathered = 0
    for axis in reversed(axes):
        held, num_sent = reduce_scatter(held, axis, mesh.sizes[axis])
        num_scattered += num_sent
    num_shard = {part.size for part in held.values()}
    for axis in axes:
        held, num_sent = all_gather(held, axis, mesh.sizes[axis])
        num_gathered += num_sent
    own = weight_placements(WEIGHT, strategy.splits)
    shapes = distribute(gradient, own, mesh.sizes, random)
    whole = {device: part.reshape(shapes[device].shape) for device, part in held.items()}
    np.testing.assert_allclose(collect(whole, own, mesh.sizes), gradient, atol=1e-9)
    (num_part,), num_local = num_shard, next(iter(shapes.values())).size
    return num_local, num_part, num_scattered, num_gathered


@given(cases())
@settings(max_examples=120)
def test_weights_cost_what_arrays_on_a_mesh_do(case):
    mesh, strategy = case
    costs = weight_costs(WEIGHT, strategy, mesh, optimizer=OPTIMIZER, element_bytes=2)
    num, part, scattered, gathered = sent_per_parameter(mesh, strategy)
    # Level 0 is replicated; the optimizer state, gradients and weights are in parts from levels 1, 2 and 3.
    level = list(WeightStorage).index(strategy.storage)
    expected = {
        "weight_bytes": 2 * (part if level >= 3 else num),
        "gradient_bytes": 3 * (part if level >= 2 else num),
        "optimizer_bytes": 5 * (part if level >= 1 else num),
        "gathered_bytes": (part < num) * num * (2 * (level >= 3) + 3 * (level >= 2)),
        "num_updated": part if level >= 1 else num,
        "num_summed": part,
    }
    assert {field: getattr(costs, field) for field in expected} == pytest.approx(expected)
    into_parts, gradients_back, weights_back = 3 * scattered, 3 * gathered, 2 * gathered
    moments = [
        (0, 0, into_parts + gradients_back),
        (0, 0, into_parts + weights_back),
        (0, into_parts, weights_back),
        (weights_back, weights_back + into_parts, 0),
    ]
    sent = (costs.forward.sent_bytes, costs.backward.sent_bytes, costs.sync.sent_bytes)
    assert sent == pytest.approx(moments[level])


@given(cases())
@settings(max_examples=60)
def test_storage_in_more_parts_never_holds_more(case):
    mesh, strategy = case
    held = []
    for storage in WeightStorage:
        stored = Strategy(splits=strategy.splits, storage=storage)
        costs = weight_costs(WEIGHT, stored, mesh, optimizer=OPTIMIZER, element_bytes=2)
        held.append(costs.weight_bytes + costs.gradient_bytes + costs.optimizer_bytes)
    assert held == sorted(held, reverse=True)
    assert math.isclose(held[0], 10 * 144 / mesh.parts(weight_placements(WEIGHT, strategy.splits)))
