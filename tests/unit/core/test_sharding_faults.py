"""Why an operator cannot be divided as a strategy says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.models import build_model
from stagecut.planner.core.cluster import UNLIMITED
from stagecut.planner.core.layer_graphs.sharding_faults import partial_faults, strategy_faults
from stagecut.planner.core.operators.operators import Operator, Port, Split, Tensor, Weight
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP, Strategy, WeightStorage
from stagecut.planner.sharding.conversions import conversion
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.placements import REPLICATE
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
    strategies,
)

DIMS = ("sample", "token", "head")


def linear(*, sizes=(None, 6, 4), passes_partial=False, weighs=True):
    """samples x tokens x heads, summed over nothing, with a weight for each head."""
    return Operator(
        name="qkv",
        kind="linear",
        inputs=(Port(tensor="input", dims=("sample", "token")),),
        outputs=(Tensor(name="output", dims=DIMS, num_bytes=1.0),),
        weights=(Weight(name="weight", dims=("head",), num_bytes=8.0),) if weighs else (),
        splits=tuple(Split(dim=dim, size=size) for dim, size in zip(DIMS, sizes, strict=True)),
        passes_partial=passes_partial,
    )


def faults(*splits, mesh, samples=4, storage="replicated", **changes):
    strategy = Strategy(splits=splits, storage=WeightStorage(storage))
    return list(strategy_faults(linear(**changes), strategy, mesh, samples=samples))


@pytest.mark.parametrize(
    ("splits", "mesh", "complaint"),
    [
        (("head",), (8,), "cannot be divided along 'head': 8 devices do not divide the 4 of 'head'"),
        (("token", "token"), (2, 2), "cannot be divided along 'token': 4 devices do not divide the 6 of 'token'"),
        (("sample",), (3,), "cannot be divided along 'sample': 3 devices do not divide the 4 samples of a replica"),
        (("heads",), (2,), "has no dimension 'heads' to be divided along, did you mean 'head'?"),
        (("width",), (2,), "has no dimension 'width' to be divided along, accepted: sample, token, head"),
        ((PARTIAL_SUMS,), (2,), "cannot compute with partial sums"),
        (("sample",), (1,), "cannot be divided along an axis of 1 device"),
    ],
)
def test_a_split_that_the_operator_does_not_have_is_named(splits, mesh, complaint):
    assert faults(*splits, mesh=mesh) == [complaint]


def test_weights_whose_gradients_are_not_summed_are_not_stored_in_parts():
    """Over devices with different heads no two have the same weights."""
    assert faults("head", mesh=(4,), storage="weights") == [
        "cannot store parts of its weights: no devices have the same weights and gradients to be summed"
    ]
    assert faults("sample", mesh=(4,), storage="weights") == []


@given(
    sizes=st.lists(st.sampled_from((1, 2, 3, 4)), max_size=2).map(tuple),
    heads=st.sampled_from((4, 6)),
    samples=st.sampled_from((1, 4)),
    passes_partial=st.booleans(),
    weighs=st.booleans(),
    data=st.data(),
)
def test_the_strategies_of_an_operator_are_those_without_a_fault(sizes, heads, samples, passes_partial, weighs, data):
    operator = linear(sizes=(None, 6, heads), passes_partial=passes_partial, weighs=weighs)
    splits = st.sampled_from((*DIMS, "width", WHOLE_LOOP, PARTIAL_SUMS))
    strategy = Strategy(
        splits=data.draw(st.tuples(*[splits] * len(sizes))), storage=data.draw(st.sampled_from(WeightStorage))
    )
    legal = strategy in strategies(operator, sizes, samples=samples)
    assert legal == (not list(strategy_faults(operator, strategy, sizes, samples=samples)))


(_, ATTENTION, FEED_FORWARD, *_) = build_model("llama-mini").layers
MESH = Mesh(axes=(MeshAxis(size=2, link=UNLIMITED), MeshAxis(size=2, link=UNLIMITED)))


def is_connected(operators, chosen):
    """Whether every tensor and every gradient can be brought to where it is needed."""
    whole = (REPLICATE,) * 2
    made = {"input": (whole, whole)}
    for operator, strategy in zip(operators, chosen, strict=True):
        for port in operator.inputs:
            there, back = made[port.tensor]
            taken, left = (each(port, strategy.splits) for each in (input_placements, input_gradient_placements))
            ways = [conversion(MESH, *ends, num_bytes=8.0) for ends in ((there, taken), (left, back))]
            if None in ways:
                return False
        for tensor in operator.outputs:
            ends = (each(tensor, strategy.splits) for each in (output_placements, output_gradient_placements))
            made[tensor.name] = tuple(ends)
    return True


@settings(max_examples=50)
@given(layer=st.sampled_from((ATTENTION, FEED_FORWARD)), data=st.data())
def test_only_partial_sums_cannot_be_made_on_the_way(layer, data):
    chosen = [data.draw(st.sampled_from(strategies(own, (2, 2), samples=4))) for own in layer.operators]
    assert is_connected(layer.operators, chosen) == (not list(partial_faults(layer.operators, chosen)))
