"""Operators of measured layers."""

from dataclasses import replace

import pytest

from stagecut.models import build_model
from stagecut.planner.core.layer_graphs.fitted_operators import with_operators_of
from stagecut.planner.core.layer_graphs.operator_graph import graph_faults, sum_faults


@pytest.fixture(scope="module")
def known():
    """An attention part."""
    return build_model("llama-mini").layers[1]


def test_equal_counts_give_the_same_operators(known):
    assert with_operators_of(replace(known, operators=()), known) == known


def test_measured_counts_are_divided_in_proportion(known):
    """3 % more is saved: of the input, and of every saved tensor."""
    measured = replace(known, operators=(), saved_bytes=1.03 * known.saved_bytes, forward_flops=2 * known.forward_flops)
    fitted = with_operators_of(measured, known)
    assert list(graph_faults(fitted.operators)) == list(sum_faults(fitted)) == []
    assert fitted.saved_input_bytes == pytest.approx(1.03 * known.saved_input_bytes)
    assert [each.forward_flops for each in fitted.operators] == [2 * each.forward_flops for each in known.operators]


def test_other_weights_are_another_layer(known):
    assert with_operators_of(replace(known, operators=(), params_bytes=1.0), known).operators == ()


def test_what_no_operator_counts_cannot_be_divided(known):
    free = replace(known, forward_flops=0.0)
    assert with_operators_of(replace(known, operators=()), free).operators == ()
