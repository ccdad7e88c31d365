"""Forward FLOPs of the catalogue against formulas and published counts."""

import pytest

from stagecut.models import build_model

SHAPES = {
    "gpt1-14": (14, 768, 40478),
    "gpt2-345m": (24, 1024, 50257),
    "gpt2-762m": (36, 1280, 50257),
    "gpt2-1.3b": (24, 2048, 50257),
    "gpt2-xl": (48, 1600, 50257),
    "gpt3-175b": (96, 12288, 50257),
}
"""Blocks, hidden width, vocabulary."""


def forward_flops(model):
    return sum(layer.forward_flops for layer in model.layers)


@pytest.mark.parametrize("name", SHAPES)
def test_training_flops_follow_narayanan(name):
    """96 s l h^2 (1 + s / 6h + V / 16lh) per sample (SC 2021), with all blocks computed twice: 4 and 3 forwards."""
    model = build_model(name)
    blocks, hidden, vocabulary = SHAPES[name]
    tokens = model.sequence_length
    head = model.layers[-1].forward_flops
    ours = 4 * (forward_flops(model) - head) + 3 * head
    formula = 96 * tokens * blocks * hidden**2
    formula *= 1 + tokens / (6 * hidden) + vocabulary / (16 * blocks * hidden)
    assert ours == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("name", [*SHAPES, "bert-large", "llama3-8b", "llama3-70b"])
def test_forward_is_two_flops_per_parameter_and_token_plus_attention(name):
    """2 N D, with N the parameters that are multiplied: all but lookups, where the tied matrix is in the head."""
    model = build_model(name)
    tokens = model.sequence_length
    tied = model.layers[-1].params_bytes < model.layers[0].params_bytes / 10
    hidden = model.layers[0].output_bytes / 2 / tokens
    positions = {"gpt1-14": 512, "bert-large": 512, "gpt3-175b": 2048}.get(name, 1024)
    lookups = positions * hidden if tied else model.layers[0].params_bytes / 2
    blocks = sum(layer.kind == "attention" for layer in model.layers)
    attention = 4 * blocks * tokens**2 * hidden
    formula = 2 * (model.num_params - lookups) * tokens + attention
    assert forward_flops(model) == pytest.approx(formula, rel=0.005)


def test_mixtral_computes_its_active_parameters():
    """2 x (12.88 B active - 0.13 B embedding) x 4096 tokens + 4 x 32 blocks x 4096^2 x 4096."""
    model = build_model("mixtral-8x7b")
    active = model.num_params - 32 * 6 * 3 * 4096 * 14336 - 32000 * 4096
    formula = 2 * active * 4096 + 4 * 32 * 4096**2 * 4096
    assert forward_flops(model) == pytest.approx(formula, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "giga_multiply_adds"),
    [("vgg16", 15.47), ("vgg19", 19.63), ("resnet50", 4.09), ("resnet152", 11.51), ("vit-large", 61.55)],
)
def test_image_models_match_published_multiply_adds(name, giga_multiply_adds):
    """Counts beside torchvision's weights, one per multiply-add; half a unit of the last digit allowed, or 0.1 %."""
    ours = forward_flops(build_model(name)) / 2e9
    assert ours == pytest.approx(giga_multiply_adds, rel=1e-3, abs=0.006)


def test_first_unet_convolution_by_hand():
    """2 x 9 x 1 x 64 x 512^2; the one after it has 64 input channels."""
    first, second, *_ = build_model("unet").layers
    assert first.forward_flops == 2 * 9 * 64 * 512**2
    assert second.forward_flops == 64 * first.forward_flops
