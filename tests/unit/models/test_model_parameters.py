"""Parameters of the catalogue against published counts."""

import pytest

from stagecut.models import build_model
from stagecut.models.catalogue import ENTRIES
from stagecut.models.families.gpt import GptShape, gpt
from stagecut.models.families.mixtral import EXPERTS_PER_TOKEN, NUM_EXPERTS
from stagecut.planner.core.precision import Precision

PUBLISHED = {
    "gpt2-345m": 355e6,
    "gpt2-762m": 774e6,
    "gpt2-1.3b": 1_315_758_080,
    "gpt2-xl": 1558e6,
    "gpt3-175b": 175e9,
    "bert-large": 336e6,
    "llama3-8b": 8.03e9,
    "llama3-70b": 70.55e9,
    "mixtral-8x7b": 46.7e9,
    "vit-large": 304_326_632,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "unet": 31.0e6,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_within_half_a_percent_of_the_published_count(name):
    assert build_model(name).num_params == pytest.approx(PUBLISHED[name], rel=0.005)


def test_catalogue_states_the_published_counts():
    stated = {entry.name: entry.published_params for entry in ENTRIES if entry.published_params is not None}
    assert stated == PUBLISHED


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2-345m", 354_823_168),
        ("gpt2-762m", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("mixtral-8x7b", 46_702_792_704),
        ("vit-large", 304_326_632),
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("resnet50", 25_557_032),
        ("resnet152", 60_192_808),
    ],
)
def test_parameters_equal_those_of_the_released_weights(name, count):
    assert build_model(name).num_params == count


def test_fourteen_block_gpt_is_gpt1_and_two_blocks():
    """GPT-1 has 116 534 784 parameters; a block of hidden 768 has 12 h^2 + 13 h = 7 087 872."""
    twelve = GptShape(blocks=12, hidden=768, heads=12, vocabulary=40478, positions=512, final_norm=False)
    gpt1 = gpt(twelve, 512).in_precision(Precision.FP16, name="gpt1", sequence_length=512)
    assert gpt1.num_params == 116_534_784
    assert gpt1.num_params == pytest.approx(117e6, rel=0.005)
    assert build_model("gpt1-14").num_params == 116_534_784 + 2 * 7_087_872


def test_bert_is_the_encoder_and_its_pre_training_head():
    """335 141 888 with pooler; masked-token head h^2 + 3 h + v, next sentence 2 h + 2."""
    h, v = 1024, 30522
    assert build_model("bert-large").num_params == 335_141_888 + h * h + 3 * h + v + 2 * h + 2


@pytest.mark.parametrize("name", ["gpt1-14", "gpt2-xl", "gpt3-175b", "bert-large"])
def test_tied_matrix_is_held_by_the_embedding_alone(name):
    """The head keeps less than a tenth of what the embedding holds; the untied one of Llama the whole matrix."""
    layers = build_model(name).layers
    assert layers[-1].params_bytes < layers[0].params_bytes / 10
    untied = build_model("llama3-8b").layers
    assert untied[-1].params_bytes > untied[0].params_bytes


def test_mixtral_uses_a_quarter_of_its_experts():
    """Published: 12.9 B of 46.7 B parameters are active per token."""
    model = build_model("mixtral-8x7b")
    experts = 32 * 8 * 3 * 4096 * 14336
    active = model.num_params - experts * (1 - EXPERTS_PER_TOKEN / NUM_EXPERTS)
    assert active == pytest.approx(12.9e9, rel=0.005)
