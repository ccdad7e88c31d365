"""Schemes of experts: every axis has a role."""

from dataclasses import replace

import pytest

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.operators.operators import HIDDEN, SAMPLE, TOKEN
from stagecut.planner.core.operators.strategy import WHOLE_LOOP, WeightStorage
from stagecut.planner.sharding_search.experts import experts_on
from stagecut.planner.sharding_search.scheme_search import expert_schemes
from tests.sharding_models import attention, case_of, layer_of, linear, model_of, pointwise


def _splits(case, name):
    """Splits of the first layer's operators."""
    expert = next(each for each in experts_on(case) if each.name == name)
    allowed = expert.allowed(case)
    return {own.name: allowed(0, own)[0].splits for own in operators_of(case.model.layers[0])}


@pytest.fixture
def case():
    return case_of(model_of(attention("a"), attention("b")), 2, 4)


def test_data_parallelism_divides_samples_everywhere(case):
    assert set(_splits(case, "data parallel").values()) == {(SAMPLE, SAMPLE)}


def test_megatron_divides_heads_inside_and_tokens_between(case):
    assert _splits(case, "Megatron") == {
        "norm": (SAMPLE, TOKEN),
        "qkv": (SAMPLE, "head"),
        "core": (SAMPLE, "head"),
        "project": (SAMPLE, "head"),
        "residual": (SAMPLE, TOKEN),
    }


def test_two_dimensional_tensor_parallelism_divides_both_dimensions_of_weights(case):
    splits = _splits(case, "2-D tensor parallel")
    assert splits["qkv"] == splits["project"] == (HIDDEN, "head")


def test_the_one_weird_trick_divides_convolutions_by_samples_and_others_by_outputs():
    convolution = replace(
        linear("conv", "input", "made", inner="channel in", outer="channel", width=8), kind="convolution"
    )
    image = layer_of("conv", convolution, pointwise("relu", "made", made="output", dim="channel", width=8))
    product = linear("product", "input", "made", inner="feature", outer="width", width=8)
    dense = layer_of("dense", product, pointwise("relu", "made", made="output", dim="width", width=8))
    case = case_of(model_of(image, dense), 4)
    expert = next(each for each in experts_on(case) if each.name == "one weird trick")
    chosen = [[expert.allowed(case)(n, own)[0].splits for own in operators_of(case.model.layers[n])] for n in (0, 1)]
    assert chosen == [[(SAMPLE,), (SAMPLE,)], [("width",), ("width",)]]


def test_an_axis_that_nothing_can_be_divided_by_computes_alike():
    # 8 devices do not divide 4 samples
    case = case_of(model_of(attention("a")), 8, micro_batch=4)
    assert set(_splits(case, "data parallel").values()) == {(WHOLE_LOOP,)}


def test_fsdp_stores_weights_in_parts_and_holds_less(case):
    schemes = {scheme.name: scheme for scheme in expert_schemes(case)}
    stored = {own.storage for own in schemes["FSDP"].sharding.layers[0].operators}
    assert stored == {WeightStorage.WEIGHTS, WeightStorage.REPLICATED}  # attention and residual have no weights
    assert schemes["FSDP"].costs.memory_bytes < schemes["data parallel"].costs.memory_bytes
    assert schemes["FSDP"].costs.sent_bytes > schemes["data parallel"].costs.sent_bytes
