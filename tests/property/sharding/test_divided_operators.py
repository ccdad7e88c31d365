"""Operators divided over an emulated mesh compute what a single device does, forwards and backwards."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.operators.operators import Operator, Port, Split, Tensor, Weight
from stagecut.planner.sharding.placements import PARTIAL
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    num_parts,
    output_gradient_placements,
    output_placements,
    strategies,
    weight_gradient_placements,
    weight_placements,
)
from tests.mesh_arrays import collect, devices_of, distribute
from tests.sharded_operators import SIZE, Product

MESHES = st.sampled_from(((2,), (3,), (2, 2), (2, 3), (3, 2), (2, 2, 3)))


@st.composite
def products(draw):
    """Of one or two inputs and up to two weights, over two to four dimensions that two of the tensors have each."""
    num_inputs, num_weights = draw(st.integers(1, 2)), draw(st.integers(0, 2))
    slots = num_inputs + num_weights + 1
    dims = [""] * slots
    for letter in "abcd"[: draw(st.integers(2, 4))]:
        for slot in draw(st.sets(st.integers(0, slots - 1), min_size=2)):
            dims[slot] += letter
    dims = [draw(st.permutations(own)) for own in dims]
    *factors, output = ("".join(own) for own in dims)
    assume(output)
    bias = draw(st.booleans())
    return Product(inputs=(*factors[:num_inputs],), weights=(*factors[num_inputs:],), output=output, bias=bias)


@given(products(), MESHES, st.data())
@settings(max_examples=100)
def test_a_divided_product_is_that_of_a_single_device(product, sizes, data):
    operator = product.operator
    splits = data.draw(st.sampled_from(strategies(operator, sizes, samples=1))).splits
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    takes = [input_placements(port, splits) for port in operator.inputs]
    takes += [weight_placements(weight, splits) for weight in operator.weights]
    tensors = [random.standard_normal([SIZE] * len(own.dims)) for own in (*operator.inputs, *operator.weights)]
    held = [distribute(tensor, own, sizes, random) for tensor, own in zip(tensors, takes, strict=True)]
    leaves = output_placements(operator.outputs[0], splits)
    share = 1 / math.prod(size for size, own in zip(sizes, leaves, strict=True) if own is PARTIAL)

    local = {device: [own[device] for own in held] for device in devices_of(sizes)}
    outputs = {device: product.forward(own, bias_share=share) for device, own in local.items()}
    np.testing.assert_allclose(collect(outputs, leaves, sizes), product.forward(tensors), atol=1e-9)

    of_output = random.standard_normal([SIZE] * len(product.output))
    of_outputs = distribute(of_output, output_gradient_placements(operator.outputs[0], splits), sizes, random)
    gradients = {device: product.gradients(own, of_outputs[device], bias_share=share) for device, own in local.items()}
    gives = [input_gradient_placements(port, splits) for port in operator.inputs]
    gives += [weight_gradient_placements(weight, splits) for weight in operator.weights]
    for index, (expected, own) in enumerate(zip(product.gradients(tensors, of_output), gives, strict=True)):
        found = collect({device: every[index] for device, every in gradients.items()}, own, sizes)
        np.testing.assert_allclose(found, expected, atol=1e-9)


@given(products(), MESHES, st.data())
@settings(max_examples=30)
def test_each_device_computes_its_part_of_the_loop(product, sizes, data):
    """The loop has SIZE^dims steps; a device runs those of the dimensions that its tensors have left."""
    operator = product.operator
    splits = data.draw(st.sampled_from(strategies(operator, sizes, samples=1))).splits
    random, left = np.random.default_rng(0), {}
    takes = [(port.dims, input_placements(port, splits)) for port in operator.inputs]
    takes += [(weight.dims, weight_placements(weight, splits)) for weight in operator.weights]
    for dims, own in takes:
        part = distribute(np.zeros([SIZE] * len(dims)), own, sizes, random)[(0,) * len(sizes)]
        left.update(zip(dims, part.shape, strict=True))
    assert math.prod(left.values()) * num_parts(splits, sizes) == SIZE ** len(left)


def residual(passes_partial=True):
    """The sum of two tensors."""
    return Operator(
        name="sum",
        kind="elementwise",
        inputs=(Port(tensor="x", dims=("a", "b")), Port(tensor="z", dims=("a", "b"))),
        outputs=(Tensor(name="y", dims=("a", "b"), num_bytes=1.0),),
        splits=(Split(dim="a", size=SIZE), Split(dim="b", size=SIZE)),
        passes_partial=passes_partial,
    )


@given(MESHES, st.data())
@settings(max_examples=30)
def test_a_divided_sum_of_two_is_that_of_a_single_device(sizes, data):
    operator = residual()
    splits = data.draw(st.sampled_from(strategies(operator, sizes, samples=1))).splits
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    first, second = random.standard_normal((2, SIZE, SIZE))
    x, z = (
        distribute(tensor, input_placements(port, splits), sizes, random)
        for tensor, port in zip((first, second), operator.inputs, strict=True)
    )
    total = {device: x[device] + z[device] for device in x}
    np.testing.assert_allclose(
        collect(total, output_placements(operator.outputs[0], splits), sizes), first + second, atol=1e-9
    )
    assert input_gradient_placements(operator.inputs[0], splits) == output_gradient_placements(
        operator.outputs[0], splits
    )


def embedding():
    """Rows of a table, looked up by tokens."""
    return Operator(
        name="embedding",
        kind="embedding",
        inputs=(Port(tensor="tokens", dims=("t",)),),
        outputs=(Tensor(name="y", dims=("t", "h"), num_bytes=1.0),),
        weights=(Weight(name="table", dims=("v", "h"), num_bytes=1.0),),
        splits=tuple(Split(dim=dim, size=SIZE) for dim in "tvh"),
    )


@given(MESHES, st.data())
@settings(max_examples=40)
def test_a_divided_embedding_is_that_of_a_single_device(sizes, data):
    """A device looks up the tokens of its rows and gives zeros for the others."""
    operator = embedding()
    splits = data.draw(st.sampled_from(strategies(operator, sizes, samples=1))).splits
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    tokens, table = random.integers(0, SIZE, SIZE), random.standard_normal((SIZE, SIZE))
    port, weight, tensor = operator.inputs[0], operator.weights[0], operator.outputs[0]
    rows = distribute(
        np.arange(SIZE)[:, None], weight_placements(Weight(name="", dims=("v",), num_bytes=0), splits), sizes, random
    )
    own_tokens = distribute(tokens, input_placements(port, splits), sizes, random)
    tables = distribute(table, weight_placements(weight, splits), sizes, random)
    one_hot = {device: (own_tokens[device][:, None] == rows[device].T).astype(float) for device in rows}
    outputs = {device: one_hot[device] @ tables[device] for device in rows}
    np.testing.assert_allclose(collect(outputs, output_placements(tensor, splits), sizes), table[tokens], atol=1e-9)

    of_output = random.standard_normal((SIZE, SIZE))
    of_outputs = distribute(of_output, output_gradient_placements(tensor, splits), sizes, random)
    of_tables = {device: one_hot[device].T @ of_outputs[device] for device in rows}
    expected = (tokens[:, None] == np.arange(SIZE)).astype(float).T @ of_output
    np.testing.assert_allclose(
        collect(of_tables, weight_gradient_placements(weight, splits), sizes), expected, atol=1e-9
    )
