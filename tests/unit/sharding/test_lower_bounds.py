"""Lower bounds on what is communicated, in numbers derived by hand and against every strategy of a product."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import UNLIMITED
from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.operators.operators import (
    HIDDEN,
    INPUT,
    OUTPUT,
    SAMPLE,
    Operator,
    Port,
    Split,
    Tensor,
    Weight,
)
from stagecut.planner.core.operators.strategy import WeightStorage
from stagecut.planner.sharding.edges import TensorEnds, edge_costs
from stagecut.planner.sharding.lower_bounds import least_iteration_bytes, least_words
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.operator_costs import weight_costs
from stagecut.planner.sharding.placements import Shard
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    num_parts,
    output_gradient_placements,
    output_placements,
    strategies,
)

BYTES_EACH = Optimizer(name="bytes", weight_bytes=1.0, gradient_bytes=1.0, state_bytes=1.0)
SIZES = st.sampled_from((4, 8, 16, 64))


def test_few_devices_divide_the_longest_side():
    """m, n, k = 64, 4, 4 on 4 <= 64 / 4: D = 16 + 512 / 4 = 144, of which (256 + 256 + 16) / 4 = 132 are there."""
    assert least_words(4, 64, 4, num_devices=4) == 12


def test_more_devices_divide_two_sides():
    """16, 16, 2 on 16: D = 16 + 2 sqrt(64) = 32, of which (256 + 32 + 32) / 16 = 20 are there."""
    assert least_words(16, 2, 16, num_devices=16) == 12


def test_many_devices_divide_all_three_sides():
    """A cube of 8 on 8: D = 3 x 64^(2/3) = 48, of which 3 x 64 / 8 = 24 are there."""
    assert least_words(8, 8, 8, num_devices=8) == pytest.approx(24)


def test_one_device_communicates_nothing():
    assert least_words(5, 7, 3, num_devices=1) == 0


@given(st.tuples(SIZES, SIZES, SIZES), st.booleans())
def test_the_regimes_meet_where_they_change(sizes, second):
    m, n, k = sorted(sizes, reverse=True)
    change = m * n / k**2 if second else m / n
    below, above = (least_words(*sizes, num_devices=change * factor) for factor in (1 - 1e-9, 1 + 1e-9))
    assert below == pytest.approx(above, rel=1e-6, abs=1e-4)


def product(rows, columns, inner):
    """Samples are rows, of one byte each number."""
    return Operator(
        name="product",
        kind="linear",
        inputs=(Port(tensor=INPUT, dims=(SAMPLE, HIDDEN)),),
        outputs=(Tensor(name=OUTPUT, dims=(SAMPLE, "width"), num_bytes=columns),),
        weights=(Weight(name="weight", dims=("width", HIDDEN), num_bytes=columns * inner),),
        splits=(Split(dim=SAMPLE), Split(dim="width", size=columns), Split(dim=HIDDEN, size=inner)),
        forward_flops=2.0 * columns * inner,
    )


def mesh_of(*sizes):
    return Mesh(axes=tuple(MeshAxis(size=size, link=UNLIMITED) for size in sizes))


def iteration_bytes(operator, strategy, mesh, ends, *, samples, inner):
    """Sent by each device if input and output are in the parts of `ends` outside, so that there is one copy of each."""
    (port,), (tensor,) = operator.inputs, operator.outputs
    splits, (before, after) = strategy.splits, ends
    edges = (
        (
            TensorEnds(
                made=before,
                made_gradient=before,
                taken=input_placements(port, splits),
                taken_gradient=input_gradient_placements(port, splits),
            ),
            samples * inner,
        ),
        (
            TensorEnds(
                made=output_placements(tensor, splits),
                made_gradient=output_gradient_placements(tensor, splits),
                taken=after,
                taken_gradient=after,
            ),
            samples * tensor.num_bytes,
        ),
    )
    costs = [edge_costs(mesh, ends, num_bytes=num_bytes, saved=False) for ends, num_bytes in edges]
    weights = weight_costs(operator.weights[0], strategy, mesh, optimizer=BYTES_EACH, element_bytes=1)
    traffic = [way for own in costs for way in (own.forward, own.backward)]
    return sum(own.sent_bytes for own in (*traffic, weights.forward, weights.backward, weights.sync))


@given(SIZES, SIZES, SIZES, st.sampled_from(((2,), (4,), (2, 2), (2, 4), (2, 2, 2))), st.data())
@settings(max_examples=200)
def test_no_strategy_of_a_product_sends_less(rows, columns, inner, sizes, data):
    operator, mesh = product(rows=rows, columns=columns, inner=inner), mesh_of(*sizes)
    strategy = data.draw(st.sampled_from(strategies(operator, sizes, samples=rows)))
    assume(num_parts(strategy.splits, sizes) == mesh.num_devices)
    ends = [tuple(Shard(data.draw(st.integers(0, 1))) for _ in sizes) for _ in range(2)]
    sent = iteration_bytes(operator, strategy, mesh, ends, samples=rows, inner=inner)
    least = least_iteration_bytes([operator], global_batch=rows, num_devices=mesh.num_devices, element_bytes=1)
    assert sent >= least * (1 - 1e-12)


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "sizes"), [(64, 4, 4, (4,)), (16, 16, 2, (4, 4)), (8, 8, 8, (2, 2, 2))]
)
def test_the_right_grid_sends_as_little_as_possible(rows, columns, inner, sizes):
    """Parts of the longest side, of the two longer ones, of all three: twice the bounds of 12, 12 and 24."""
    operator, mesh = product(rows=rows, columns=columns, inner=inner), mesh_of(*sizes)
    found = [
        own
        for own in strategies(operator, sizes, samples=rows)
        if num_parts(own.splits, sizes) == mesh.num_devices and own.storage is WeightStorage.REPLICATED
    ]
    outside = list(itertools.product((Shard(0), Shard(1)), repeat=len(sizes)))
    least = min(
        iteration_bytes(operator, own, mesh, (before, after), samples=rows, inner=inner)
        for own in found
        for before in outside
        for after in outside
    )
    bound = least_iteration_bytes([operator], global_batch=rows, num_devices=mesh.num_devices, element_bytes=1)
    assert least == pytest.approx(bound)


def test_operators_add_up_over_the_whole_batch():
    """Rows are those of all samples; an operator that is no product counts nothing."""
    operators = [product(rows=1, columns=4, inner=4)] * 2
    assert least_iteration_bytes(operators, global_batch=64, num_devices=4, element_bytes=1) == 2 * 2 * 12
    core = replace(operators[0], kind="attention", weights=())
    assert least_iteration_bytes([core], global_batch=64, num_devices=4, element_bytes=1) == 0
