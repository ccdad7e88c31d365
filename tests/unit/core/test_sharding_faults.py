"""Why an operator cannot be divided as a strategy says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecut.planner.core.operators import Operator, Port, Split, Tensor, Weight
from stagecut.planner.core.sharding_faults import strategy_faults
from stagecut.planner.core.strategy import PARTIAL_SUMS, WHOLE_LOOP, Strategy, WeightStorage
from stagecut.planner.sharding.strategies import strategies

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
