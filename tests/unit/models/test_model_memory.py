"""Saved, working and output bytes by hand."""

import pytest

from stagecut.models import build_model
from stagecut.planner.core.precision import Precision


def layer(model, name):
    return next(layer for layer in model.layers if layer.name == name)


@pytest.mark.parametrize(
    ("name", "hidden", "heads"),
    [("gpt2-345m", 1024, 16), ("gpt2-xl", 1600, 25), ("gpt3-175b", 12288, 96), ("bert-large", 1024, 16)],
)
def test_block_saves_what_korthikanti_counts_without_the_score_matrix(name, hidden, heads):
    """34 s h bytes in fp16 (attention 13, feed-forward 21), and 4 a s bytes of softmax statistics."""
    model = build_model(name)
    tokens = model.sequence_length
    attention, feed_forward = layer(model, "block0.attention"), layer(model, "block0.feed-forward")
    assert attention.saved_bytes == 13 * tokens * hidden + 4 * heads * tokens
    assert feed_forward.saved_bytes == 21 * tokens * hidden


def test_block_in_fp32_keeps_its_masks_at_one_byte():
    """16 numbers of 4 bytes and two masks of 1 byte: 66 s h; 4 a s stays."""
    model = build_model("gpt2-345m", precision=Precision.FP32)
    saved = sum(layer(model, f"block0.{part}").saved_bytes for part in ("attention", "feed-forward"))
    assert saved == 66 * 1024 * 1024 + 4 * 16 * 1024


def test_head_keeps_log_probabilities_in_fp32():
    """Input and normed input 2 x 2 s h, 4 s v, labels 8 s; working 2 s (v + h) + 4 s v; nothing is handed on."""
    model = build_model("gpt2-xl")
    s, h, v = 1024, 1600, 50257
    head = model.layers[-1]
    assert head.saved_bytes == 4 * s * h + 4 * s * v + 8 * s
    assert head.working_bytes == 2 * s * (v + h) + 4 * s * v
    assert head.output_bytes == 0


def test_boundaries_of_a_transformer_carry_the_hidden_state():
    """s h numbers of 2 bytes at every inner boundary, nothing at the ends."""
    model = build_model("gpt2-xl")
    crossing = model.boundary_bytes()
    assert crossing[0] == crossing[-1] == 0
    assert set(crossing[1:-1]) == {1024 * 1600 * 2.0}


def test_grouped_queries_shrink_keys_and_values():
    """Llama 3 8B: 4 h + 2 h / 4 numbers of 2 bytes, no masks, 4 x 32 bytes of statistics per token."""
    attention = layer(build_model("llama3-8b"), "block0.attention")
    assert attention.saved_bytes == 8192 * (2 * (4 * 4096 + 2 * 1024) + 4 * 32)
    assert attention.params_bytes == 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 4096)


def test_experts_keep_the_tensors_of_two_experts():
    """2 h + 8 + 2 (2 h + 4 f) numbers per token."""
    experts = layer(build_model("mixtral-8x7b"), "block0.experts")
    assert experts.saved_bytes == 2 * 4096 * (2 * 4096 + 8 + 2 * (2 * 4096 + 4 * 14336))


def test_pooled_convolution_keeps_the_places_of_the_maxima():
    """VGG conv1-2: input and output 64 x 224^2 numbers each, 8 bytes for each of 64 x 112^2 maxima."""
    convolution = layer(build_model("vgg16"), "conv1-2")
    assert convolution.saved_bytes == 2 * 2 * 64 * 224**2 + 8 * 64 * 112**2
    assert convolution.output_bytes == 2 * 64 * 112**2
    assert convolution.working_bytes == 2 * (2 * 64 * 224**2 + 64 * 112**2)


def test_first_residual_block_by_hand():
    """Input 64, two tensors each of 64 and 64, then 256 and the projection's 256 channels on 56^2."""
    block = layer(build_model("resnet50"), "block1-1")
    assert block.saved_bytes == 2 * 56**2 * (64 + 2 * (64 + 64) + 256 + 256)
    assert block.output_bytes == 2 * 56**2 * 256


def test_downsampling_block_reduces_before_its_stride():
    """block2-1 of ResNet-50: 128 channels still on 56^2, then 128, 512 and 512 on 28^2."""
    block = layer(build_model("resnet50"), "block2-1")
    assert block.saved_bytes == 2 * (56**2 * (256 + 2 * 128) + 28**2 * (2 * 128 + 512 + 512))


def test_residual_networks_have_no_skip_edge_between_layers():
    model = build_model("resnet152")
    assert model.skip_edges == ()
    assert model.num_layers == 1 + 50 + 1


def test_unet_skip_edges_join_levels():
    """Four edges of width x side^2 numbers, from the end of a level down to its concatenation."""
    model = build_model("unet")
    joined = [(model.layers[edge.source].name, model.layers[edge.target].name) for edge in model.skip_edges]
    assert joined == [(f"down{level}.conv2", f"up{level}.conv1") for level in range(4)]
    assert [edge.num_bytes for edge in model.skip_edges] == [
        2.0 * width * side**2 for width, side in ((64, 512), (128, 256), (256, 128), (512, 64))
    ]


def test_boundary_inside_the_unet_carries_its_output_and_every_open_skip_edge():
    """Before down1.conv1: the pooled 64 x 256^2 and the skipped 64 x 512^2; at the bottom all four edges are open."""
    model = build_model("unet")
    names = [each.name for each in model.layers]
    crossing = model.boundary_bytes()
    assert crossing[names.index("down1.conv1")] == 2 * (64 * 256**2 + 64 * 512**2)
    open_edges = 64 * 512**2 + 128 * 256**2 + 256 * 128**2 + 512 * 64**2
    assert crossing[names.index("bottom.conv2")] == 2 * (1024 * 32**2 + open_edges)
    assert crossing[names.index("head")] == 2 * 64 * 512**2


def test_concatenation_is_saved_as_a_copy():
    """up3.conv1 reads 512 channels from below and 512 from the skip edge."""
    assert layer(build_model("unet"), "up3.conv1").saved_bytes == 2 * 1024 * 64**2


def test_blocks_all_reduce_the_hidden_state_under_tensor_parallelism():
    """s h numbers of 2 bytes in each direction, and half of that at the two ends."""
    embedding, *blocks, head = build_model("gpt2-xl").layers
    assert {part.tensor_parallel_bytes for part in blocks} == {1024 * 1600 * 2.0}
    assert (embedding.tensor_parallel_bytes, head.tensor_parallel_bytes) == (1024 * 1600.0, 1024 * 1600.0)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b"])
def test_every_layer_of_a_decoder_can_be_shared(name):
    """SwiGLU and experts alike: s h numbers of 2 bytes."""
    model = build_model(name)
    assert {part.tensor_parallel_bytes for part in model.layers[1:-1]} == {model.sequence_length * 4096 * 2.0}
    assert None not in {part.tensor_parallel_bytes for part in model.layers}


def test_convolutions_cannot_be_shared():
    for name in ("vgg16", "resnet50", "unet", "synthetic"):
        assert {part.tensor_parallel_bytes for part in build_model(name).layers} == {None}


def test_ends_of_a_vision_transformer_cannot_be_shared():
    embedding, *blocks, head = build_model("vit-large").layers
    assert (embedding.tensor_parallel_bytes, head.tensor_parallel_bytes) == (None, None)
    assert {part.tensor_parallel_bytes for part in blocks} == {197 * 1024 * 2.0}
