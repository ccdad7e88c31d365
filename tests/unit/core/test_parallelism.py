"""Kinds of parallelism that a job allows, and the strategies of operators that need them."""

import pytest

from stagecut.planner.core.operators.operators import Operator, Split, Tensor
from stagecut.planner.core.operators.parallelism import Parallelism, allows
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP, Strategy, WeightStorage


def operator(kind="linear"):
    dims = ("sample", "token", "width", "expert")
    output = Tensor(name="output", dims=dims, num_bytes=1.0)
    splits = (Split(dim="sample"), *(Split(dim=dim, size=8) for dim in dims[1:]))
    return Operator(name="some", kind=kind, inputs=(), outputs=(output,), splits=splits)


def kinds_for(split, *, kind="linear", storage=WeightStorage.REPLICATED):
    """The kinds of parallelism of which each allows the split on its own."""
    strategy = Strategy(splits=(split,), storage=storage)
    return {name.value for name in Parallelism if allows({name}, operator(kind), strategy)}


@pytest.mark.parametrize(
    ("split", "kinds"),
    [
        ("sample", {"data", "zero1", "zero2", "fsdp"}),
        ("token", {"sequence", "context"}),
        ("width", {"tensor"}),
        (PARTIAL_SUMS, {"tensor"}),
        ("expert", {"experts"}),
        (WHOLE_LOOP, {kind.value for kind in Parallelism}),
    ],
)
def test_every_split_belongs_to_kinds_of_parallelism(split, kinds):
    assert kinds_for(split) == kinds


def test_tokens_of_an_attention_core_need_context_parallelism():
    assert kinds_for("token", kind="attention") == {"context"}


@pytest.mark.parametrize(
    ("storage", "kind"),
    [(WeightStorage.OPTIMIZER, "zero1"), (WeightStorage.GRADIENTS, "zero2"), (WeightStorage.WEIGHTS, "fsdp")],
)
def test_weights_in_parts_need_their_own_kind(storage, kind):
    assert kinds_for("sample", storage=storage) == {kind}


def test_every_axis_has_to_be_allowed():
    both = Strategy(splits=("sample", "width"))
    assert not allows({Parallelism.DATA}, operator(), both)
    assert allows({Parallelism.DATA, Parallelism.TENSOR}, operator(), both)
