"""Strategies in words."""

import pytest

from stagecut.planner.core.operators.operators import INPUT, OUTPUT, Operator, Port, Split, Tensor, Weight
from stagecut.planner.core.operators.strategy import LayerStrategy, Strategy, WeightStorage
from stagecut.planner.sharding.words import layer_words, stage_words

STATE = ("sample", "token", "hidden")


def operator(name, kind, *, splits, weight_bytes=0.0):
    weights = (Weight(name="weight", dims=("head", "hidden"), num_bytes=weight_bytes),) if weight_bytes else ()
    return Operator(
        name=name,
        kind=kind,
        inputs=(Port(tensor=INPUT, dims=STATE),),
        outputs=(Tensor(name=OUTPUT, dims=STATE, num_bytes=1.0),),
        weights=weights,
        splits=tuple(Split(dim=dim, size=8) for dim in splits),
    )


NORM = operator("norm", "norm", splits=("sample", "token"), weight_bytes=1.0)
PRODUCT = operator("qkv", "linear", splits=("sample", "token", "head", "hidden"), weight_bytes=100.0)
CORE = operator("core", "attention", splits=("sample", "token", "head"))
EXPERT_PRODUCT = operator("up", "experts", splits=("sample", "token", "expert", "width"), weight_bytes=100.0)
ATTENTION = (NORM, PRODUCT, CORE)
EXPERTS = (NORM, EXPERT_PRODUCT)
FSDP, ZERO1, ZERO2 = WeightStorage.WEIGHTS, WeightStorage.OPTIMIZER, WeightStorage.GRADIENTS


def layer(*splits, storage=WeightStorage.REPLICATED):
    """Per operator its dimension per axis, separated by spaces; - for the whole loop."""
    return LayerStrategy(
        operators=tuple(
            Strategy(splits=tuple("" if word == "-" else word for word in own.split()), storage=storage)
            for own in splits
        )
    )


@pytest.mark.parametrize(
    ("operators", "strategy", "words"),
    [
        (ATTENTION, layer("sample", "sample", "sample"), "data 4"),
        (ATTENTION, layer("-", "head", "head"), "tensor 4"),
        (ATTENTION, layer("token", "head", "head"), "tensor 4, sequence"),
        (ATTENTION, layer("token", "token", "token"), "context 4"),
        (ATTENTION, layer("token", "token", "-"), "sequence 4"),
        (ATTENTION, layer("-", "-", "-"), "replicated 4"),
        (ATTENTION, layer("sample", "head", "head"), "data+tensor 4"),
        (ATTENTION, layer("sample", "sample", "sample", storage=FSDP), "FSDP 4"),
        (ATTENTION, layer("sample", "sample", "sample", storage=ZERO1), "ZeRO-1 4"),
        (ATTENTION, layer("sample", "sample", "sample", storage=ZERO2), "ZeRO-2 4"),
        (ATTENTION, layer("token", "token", "token", storage=FSDP), "context 4, FSDP"),
        (EXPERTS, layer("token", "expert"), "experts 4, sequence"),
        (EXPERTS, layer("token", "token"), "context 4"),
        (EXPERTS, layer("sample", "width"), "data+tensor 4"),
    ],
)
def test_a_layer_on_one_axis_is_named_by_what_it_divides(operators, strategy, words):
    assert layer_words(operators, strategy, (4,)) == words


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (layer("sample token", "sample head", "sample head"), "data 2 x tensor 4, sequence"),
        (layer("sample token", "sample head", "sample head", storage=FSDP), "FSDP 2 x tensor 4, sequence"),
        (layer("sample sample", "sample sample", "sample sample", storage=FSDP), "FSDP 8"),
        (layer("token sample", "token sample", "token sample", storage=FSDP), "context 2 x FSDP 4"),
        (layer("- token", "hidden head", "- head"), "tensor 8, sequence"),
        (layer("- -", "- head", "- head"), "replicated 2 x tensor 4"),
    ],
)
def test_axes_of_a_grid_are_named_one_by_one_and_equal_words_counted_together(strategy, words):
    assert layer_words(ATTENTION, strategy, (2, 4)) == words


def test_storage_of_the_norm_alone_is_not_worth_a_word():
    """1 byte of 101 has gradients that are summed over the axis."""
    assert layer_words(ATTENTION, layer("token", "head", "head", storage=ZERO1), (4,)) == "tensor 4, sequence"


def test_one_device_has_no_words():
    assert layer_words(ATTENTION, LayerStrategy(operators=(Strategy(splits=()),) * 3), ()) == ""


def test_a_stage_names_the_words_of_most_layers_first():
    tensor, data = layer("token", "head", "head"), layer("sample", "sample", "sample")
    assert stage_words([ATTENTION] * 2, [tensor] * 2, (4,)) == "tensor 4, sequence"
    assert stage_words([ATTENTION] * 3, [data, tensor, tensor], (4,)) == "tensor 4, sequence (2); data 4 (1)"
