"""Random models."""

import pytest

from stagecut.models import build_model, describe_model
from stagecut.planner.core.messages.errors import BadInputError


def test_same_name_gives_the_same_model():
    assert build_model("synthetic:7:24") == build_model("synthetic:7:24")


def test_seed_changes_the_model():
    assert build_model("synthetic:7").layers != build_model("synthetic:8").layers


def test_missing_fields_mean_seed_zero_and_sixteen_layers():
    plain = build_model("synthetic")
    assert plain.num_layers == 16
    assert plain.layers == build_model("synthetic:0").layers == build_model("synthetic:0:16").layers


def test_layers_are_those_asked_for():
    assert build_model("synthetic:7:24").num_layers == 24
    assert describe_model("synthetic:7:24").startswith("random chain of 24 layers, seed 7")


def test_shorter_chain_is_the_start_of_a_longer_one():
    """Layers are drawn one after another from the seed."""
    assert build_model("synthetic:3:24").layers[:5] == build_model("synthetic:3:5").layers


@pytest.mark.parametrize(
    "name",
    ["synthetic:", "synthetic:x", "synthetic:-1", "synthetic:1.5", "synthetic:1:2:3", "synthetic:²", "synthetic:1:"],
)
def test_malformed_name_is_answered_with_an_example(name):
    with pytest.raises(BadInputError, match="for example synthetic:7:24"):
        build_model(name)


@pytest.mark.parametrize("name", ["synthetic:0:0", "synthetic:0:10001"])
def test_number_of_layers_is_limited(name):
    with pytest.raises(BadInputError, match="layers must be between 1 and 10000"):
        build_model(name)


def test_seed_is_limited():
    with pytest.raises(BadInputError, match="seed must be at most"):
        build_model(f"synthetic:{2**63}")
