"""The catalogue of models by name."""

import subprocess
import sys

import numpy as np
import pytest

from stagecut.models import build_model, describe_model, model_names
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.profile import read_profile
from stagecut.planner.io.files.profile import to_tree as profile_tree

WANTED = {
    "gpt1-14",
    "gpt2-345m",
    "gpt2-762m",
    "gpt2-1.3b",
    "gpt2-xl",
    "gpt3-175b",
    "gpt-mini",
    "bert-large",
    "bert-mini",
    "llama3-8b",
    "llama3-70b",
    "llama-mini",
    "mixtral-8x7b",
    "vit-large",
    "vgg16",
    "vgg19",
    "vgg16-cifar",
    "resnet50",
    "resnet152",
    "unet",
    "synthetic",
}


def test_catalogue_has_every_promised_model():
    assert set(model_names()) == WANTED
    assert len(model_names()) == len(WANTED)


@pytest.mark.parametrize("name", model_names())
def test_every_model_can_be_built_and_described(name):
    """Each layer but the last hands something on, computes or holds something, and has a working set."""
    model = build_model(name)
    assert model.name == name
    assert describe_model(name)
    assert model.precision is Precision.FP16
    assert all(layer.output_bytes > 0 for layer in model.layers[:-1])
    assert all(layer.params_bytes + layer.forward_flops > 0 for layer in model.layers)
    assert all(layer.working_bytes > 0 for layer in model.layers)


@pytest.mark.parametrize("name", model_names())
def test_saved_bytes_contain_the_layers_own_input(name):
    """What crosses a boundary is kept by the layer behind it, skip edges from further back excepted."""
    model = build_model(name)
    for before, layer in zip(model.layers, model.layers[1:], strict=False):
        assert layer.saved_bytes >= before.output_bytes, layer.name


@pytest.mark.parametrize("name", model_names())
def test_precision_changes_bytes_and_nothing_else(name):
    """fp32 doubles weights and outputs; what has a size of its own keeps saved bytes below twice as much."""
    half, bf16, full = (build_model(name, precision=p) for p in (Precision.FP16, Precision.BF16, Precision.FP32))
    assert half.layers == bf16.layers
    assert full.num_params == half.num_params
    np.testing.assert_allclose(full.boundary_bytes(), 2 * half.boundary_bytes())
    for small, large in zip(half.layers, full.layers, strict=True):
        assert large.forward_flops == small.forward_flops
        assert small.saved_bytes <= large.saved_bytes <= 2 * small.saved_bytes
        assert small.working_bytes < large.working_bytes <= 2 * small.working_bytes


@pytest.mark.parametrize("name", ["gpt2-345m", "unet", "synthetic"])
def test_models_survive_the_profile_file(name, tmp_path):
    model = build_model(name)
    path = tmp_path / "profile.json"
    path.write_text(format_json(profile_tree(model)))
    assert read_profile(path) == model


def test_unknown_model_is_answered_with_the_nearest_name():
    with pytest.raises(BadInputError, match=r"unknown model 'gtp2-xl': did you mean 'gpt2-xl'\?"):
        build_model("gtp2-xl")


def test_name_far_from_all_is_answered_with_every_name():
    with pytest.raises(BadInputError, match=r"known: gpt1-14, .*synthetic"):
        describe_model("@@@")


def test_sequence_length_can_be_chosen():
    """A GPT-2 of half the sequence hands on half the bytes: 512 tokens x 1024 numbers x 2 bytes."""
    model = build_model("gpt2-345m", sequence_length=512)
    assert model.sequence_length == 512
    assert model.layers[1].output_bytes == 512 * 1024 * 2


def test_sequence_longer_than_the_learned_positions_is_rejected():
    with pytest.raises(BadInputError, match="at most 1024, its number of learned positions, got 1025"):
        build_model("gpt2-xl", sequence_length=1025)


def test_rotary_models_take_any_sequence():
    assert build_model("llama3-8b", sequence_length=100_000).sequence_length == 100_000


@pytest.mark.parametrize("length", [0, -1])
def test_sequence_without_tokens_is_rejected(length):
    with pytest.raises(BadInputError, match="at least 1"):
        build_model("bert-large", sequence_length=length)


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "vit-large", "unet", "synthetic"])
def test_models_without_sequence_refuse_a_length(name):
    with pytest.raises(BadInputError, match="sequence_length must be omitted"):
        build_model(name, sequence_length=128)
    assert build_model(name).sequence_length is None


def test_catalogue_needs_neither_torch_nor_a_solver():
    code = "import models, sys; print({'torch', 'highspy', 'click', 'pydantic'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
