"""A layer whose operators are divided in different ways computes what a single device does, and sends what is said."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import UNLIMITED
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS
from stagecut.planner.sharding.conversions import conversion
from stagecut.planner.sharding.edges import TensorEnds, edge_costs
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.placements import REPLICATE, Shard
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
    strategies,
    weight_gradient_placements,
    weight_placements,
)
from tests.mesh_arrays import apply_step, collect, distribute
from tests.sharded_operators import SIZE, Product

NUM_BYTES = float(SIZE * SIZE)
"""One for each element."""
LINEAR = Product(inputs=("ab",), weights=("cb",), output="ac")
SUM = Product(inputs=("ab", "ab"), weights=(), output="ab")
"""Its strategies are those of a sum; only the arithmetic differs."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Arrays on an emulated mesh, and what has been sent so far in elements."""

    mesh: Mesh
    sent: list

    def convert(self, held, source, target):
        """The same tensor in other placements."""
        for step in conversion(self.mesh, source, target, num_bytes=NUM_BYTES):
            held, source, num_sent = apply_step(held, source, step, self.mesh.sizes)
            self.sent.append(num_sent)
        return held


def splits_of(product, sizes, data, *, sums_partial=False):
    """Of any of its strategies; a sum also passes partial sums."""
    found = [own.splits for own in strategies(product.operator, sizes, samples=1)]
    if sums_partial:
        choices = ("", "a", "b", PARTIAL_SUMS)
        found = list(itertools.product(choices, repeat=len(sizes)))
    return data.draw(st.sampled_from(found))


def states(sizes):
    return st.tuples(*(st.sampled_from((REPLICATE, Shard(0), Shard(1))) for _ in sizes))


def edge(made, made_gradient, taken, taken_gradient):
    return TensorEnds(made=made, made_gradient=made_gradient, taken=taken, taken_gradient=taken_gradient)


@given(st.sampled_from(((2,), (3,), (2, 2), (3, 2), (2, 2, 3))), st.data())
@settings(max_examples=50)
def test_a_product_and_a_residual_sum_divided_at_will(sizes, data):
    """y = x W' + x: x is taken twice, and both gradients come back to where it is made."""
    mesh = Mesh(axes=tuple(MeshAxis(size=size, link=UNLIMITED) for size in sizes))
    first, second = splits_of(LINEAR, sizes, data), splits_of(SUM, sizes, data, sums_partial=True)
    before, after = data.draw(states(sizes)), data.draw(states(sizes))
    linear, total = LINEAR.operator, SUM.operator
    port, weight, out = linear.inputs[0], linear.weights[0], linear.outputs[0]
    ends = {
        "x to product": edge(before, before, input_placements(port, first), input_gradient_placements(port, first)),
        "x to sum": edge(
            before,
            before,
            input_placements(total.inputs[1], second),
            input_gradient_placements(total.inputs[1], second),
        ),
        "product to sum": edge(
            output_placements(out, first),
            output_gradient_placements(out, first),
            input_placements(total.inputs[0], second),
            input_gradient_placements(total.inputs[0], second),
        ),
        "y": edge(
            output_placements(total.outputs[0], second),
            output_gradient_placements(total.outputs[0], second),
            after,
            after,
        ),
    }
    costs = {name: edge_costs(mesh, own, num_bytes=NUM_BYTES, saved=False) for name, own in ends.items()}
    assume(None not in costs.values())

    random, run = np.random.default_rng(data.draw(st.integers(0, 99))), Run(mesh=mesh, sent=[])
    x, w, of_y = random.standard_normal((3, SIZE, SIZE))
    weights = distribute(w, weight_placements(weight, first), sizes, random)

    def forward(name, held):
        return run.convert(held, ends[name].made, ends[name].taken)

    def backward(name, held):
        return run.convert(held, ends[name].taken_gradient, ends[name].made_gradient)

    start = distribute(x, before, sizes, random)
    taken, beside = forward("x to product", start), forward("x to sum", start)
    inner = forward("product to sum", {at: taken[at] @ weights[at].T for at in taken})
    y = forward("y", {at: inner[at] + beside[at] for at in inner})
    np.testing.assert_allclose(collect(y, after, sizes), x @ w.T + x, atol=1e-9)

    of_sum = backward("y", distribute(of_y, after, sizes, random))
    of_product = backward("product to sum", of_sum)
    of_weight = {at: of_product[at].T @ taken[at] for at in taken}
    parts = (
        backward("x to product", {at: of_product[at] @ weights[at] for at in taken}),
        backward("x to sum", of_sum),
    )
    of_x = {at: parts[0][at] + parts[1][at] for at in start}
    np.testing.assert_allclose(collect(of_x, before, sizes), of_y @ w + of_y, atol=1e-9)
    found = collect(of_weight, weight_gradient_placements(weight, first), sizes)
    np.testing.assert_allclose(found, of_y.T @ x, atol=1e-9)
    assert sum(run.sent) == pytest.approx(
        sum(own.forward.sent_bytes + own.backward.sent_bytes for own in costs.values())
    )
