"""Layers in torch are those of the analytic profile, for every model of the catalogue."""

import math
from functools import cache

import pytest
import torch

from stagecut.models import build_model, build_modules, model_names
from stagecut.models.families.mixtral import MixtralShape, mixtral
from stagecut.planner.core.precision import Precision

ROUTED = {"mixtral-8x7b"}
"""The experts that a token takes depend on its values, which the device "meta" has none of."""
NAMES = (*model_names(), "synthetic:7:24")


@cache
def profile(name):
    return build_model(name, precision=Precision.FP32)


@cache
def layers(name):
    """Every layer of a model without memory for its weights."""
    with torch.device("meta"):
        return tuple(layer.build() for layer in build_modules(name).layers)


def as_state(value):
    return value if isinstance(value, tuple) else (value,)


def crossing_bytes(modules, inputs):
    """Bytes of the state after every layer but the last."""
    state, crossing = as_state(inputs), []
    for module in modules[:-1]:
        state = as_state(module(*state))
        crossing.append(sum(tensor.nbytes for tensor in state))
    return crossing


@pytest.mark.parametrize("name", NAMES)
def test_layers_have_the_names_of_the_profile(name):
    assert [layer.name for layer in build_modules(name).layers] == [layer.name for layer in profile(name).layers]


@pytest.mark.parametrize("name", NAMES)
def test_every_layer_holds_the_parameters_of_the_profile(name):
    """Parameters agree to the last one, a tied head's copy included."""
    held = [sum(weight.nbytes for weight in module.parameters()) for module in layers(name)]
    assert held == [layer.params_bytes + layer.shared_params_bytes for layer in profile(name).layers]


@pytest.mark.parametrize("name", sorted(set(NAMES) - ROUTED))
def test_state_between_layers_is_what_crosses_the_boundary(name):
    inputs, _ = build_modules(name).batch(1, torch.Generator())
    inputs = tuple(each.to("meta") for each in as_state(inputs))
    assert crossing_bytes(layers(name), inputs) == list(profile(name).boundary_bytes()[1:-1])


def test_state_of_a_small_mixtral_is_what_crosses_the_boundary():
    from stagecut.models.modules.mixtral import mixtral_modules

    shape = MixtralShape(blocks=2, hidden=32, heads=4, key_heads=2, width=48, vocabulary=64)
    chain = mixtral_modules("small", shape, tokens=16)
    inputs, _ = chain.batch(3, torch.Generator())
    expected = mixtral(shape, 16).in_precision(Precision.FP32, name="small", sequence_length=16).boundary_bytes()[1:-1]
    assert crossing_bytes([layer.build() for layer in chain.layers], inputs) == list(3 * expected)


@pytest.mark.parametrize("name", NAMES)
def test_devices_can_share_what_the_profile_says_they_can(name):
    for layer, planned in zip(build_modules(name).layers, profile(name).layers, strict=True):
        assert (layer.tensor_parallel is None) == (planned.tensor_parallel_bytes is None), layer.name


@pytest.mark.parametrize("name", NAMES)
def test_styles_are_for_submodules_that_exist(name):
    for layer, module in zip(build_modules(name).layers, layers(name), strict=True):
        styles = layer.tensor_parallel() if layer.tensor_parallel else {}
        assert set(styles) <= {path for path, _ in module.named_modules()}, layer.name


@pytest.mark.parametrize("name", NAMES)
def test_ties_are_the_weights_that_the_profile_counts_as_shared(name):
    """The copy is a parameter of the head and has the owner's shape."""
    chain, modules = build_modules(name), layers(name)
    shared = [0.0] * len(modules)
    for tie in chain.ties:
        owner, copy = (modules[layer].get_parameter(weight) for layer, weight in (tie.owner, tie.copy))
        assert owner.shape == copy.shape
        shared[tie.copy[0]] += copy.nbytes
    assert shared == [layer.shared_params_bytes for layer in profile(name).layers]


@pytest.mark.parametrize("name", NAMES)
def test_degrees_that_divide_the_heads_divide_every_layer(name):
    """Two devices can share every model that can be shared."""
    shared = [layer.divisible for layer in build_modules(name).layers if layer.divisible is not None]
    assert math.gcd(2, *shared) == 2 or name == "gpt2-xl"


def test_twenty_five_heads_are_not_shared_by_two():
    assert {layer.divisible for layer in build_modules("gpt2-xl").layers[1:-1:2]} == {25}


def test_sequence_length_reaches_the_batch():
    inputs, targets = build_modules("gpt-mini", sequence_length=32).batch(5, torch.Generator())
    assert inputs.shape == targets.shape == (5, 32)
