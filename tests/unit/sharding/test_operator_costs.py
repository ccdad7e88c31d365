"""Costs of operators, in numbers derived by hand."""

from dataclasses import replace

import pytest

from stagecut.planner.core.cluster import UNLIMITED, Link
from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.operators.operators import Operator, Port, Split, Tensor, Weight
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, Strategy, WeightStorage
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.operator_costs import BUCKET_BYTES, operator_costs

OPTIMIZER = Optimizer(name="test", weight_bytes=1.0, gradient_bytes=1.0, state_bytes=2.0)
SLOW = Link(bandwidth_bytes_per_s=1.0, latency_s=10.0)
FAST = Link(bandwidth_bytes_per_s=8.0)
LINEAR = Operator(
    name="product",
    kind="linear",
    inputs=(Port(tensor="x", dims=("sample", "in")),),
    outputs=(Tensor(name="y", dims=("sample", "out"), num_bytes=16.0, saved=True),),
    weights=(
        Weight(name="weight", dims=("out", "in"), num_bytes=64.0),
        Weight(name="bias", dims=("out",), num_bytes=16.0),
    ),
    splits=(Split(dim="sample"), Split(dim="out", size=16), Split(dim="in", size=4)),
    working_bytes=8.0,
    passes_partial=True,
)


def costs_of(*splits, storage=WeightStorage.REPLICATED, axes=((4, FAST),), operator=LINEAR):
    mesh = Mesh(axes=tuple(MeshAxis(size=size, link=link) for size, link in axes))
    strategy = Strategy(splits=splits, storage=storage)
    return operator_costs(operator, strategy, mesh, samples=4, optimizer=OPTIMIZER, element_bytes=1)


def test_small_weights_take_their_part_of_a_bucket():
    """80 of 25 MiB, which take 2 x 3 steps of 10 s + a quarter of the bucket at 1 byte/s."""
    assert costs_of("sample", axes=((4, SLOW),)).weights.sync.seconds == pytest.approx(
        80 / BUCKET_BYTES * 6 * (10 + BUCKET_BYTES / 4)
    )


def test_large_weights_pay_the_latency_themselves():
    """80 buckets: 6 steps of 10 s + 80 / 4 buckets."""
    large = replace(LINEAR, weights=(replace(LINEAR.weights[0], num_bytes=80.0 * BUCKET_BYTES),))
    sync = costs_of("sample", axes=((4, SLOW),), operator=large).weights.sync
    assert sync.seconds == pytest.approx(6 * (10 + 20 * BUCKET_BYTES))


def test_only_the_bias_behind_a_sum_is_all_reduced():
    """Parts of the matrix have gradients of their own; of 16 biases, 2 x 3 quarters are sent."""
    weights = costs_of("in", axes=((4, SLOW),)).weights
    assert weights.sync.sent_bytes == pytest.approx(6 * 4)
    assert weights.weight_bytes == 64 / 4 + 16


def test_a_slow_outer_axis_sees_only_what_the_inner_one_left():
    """Of 80, 40 are sent each way inside, and 20 of the 40 left outside."""
    weights = costs_of("sample", "sample", axes=((2, FAST), (2, UNLIMITED))).weights
    assert weights.sync.sent_bytes == pytest.approx(2 * 40 + 2 * 20)
    assert weights.sync.seconds == pytest.approx(2 * 20 / 8)


@pytest.mark.parametrize(
    ("splits", "parts", "saved_bytes"),
    [(("sample",), 4, 16), (("out",), 4, 16), (("in",), 4, 64), (("",), 1, 64), ((PARTIAL_SUMS,), 1, 64)],
)
def test_activations_are_held_as_the_operator_leaves_them(splits, parts, saved_bytes):
    """4 samples of 16 bytes; partial sums are whole."""
    costs = costs_of(*splits)
    assert (costs.parts, costs.saved_bytes) == (parts, saved_bytes)
    assert costs.working_bytes == 4 * 8 / parts


def test_gathered_weights_and_gradients_need_room_while_they_are_used():
    """80 of each beside a working memory of 8."""
    assert costs_of("sample", storage=WeightStorage.WEIGHTS).working_bytes == 8 + 80 + 80
    assert costs_of("sample", storage=WeightStorage.GRADIENTS).working_bytes == 8 + 80
    assert costs_of("sample", storage=WeightStorage.OPTIMIZER).working_bytes == 8
