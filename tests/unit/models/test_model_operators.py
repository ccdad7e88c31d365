"""The operators of every catalogue layer: sums, order, dimensions."""

from itertools import pairwise

import pytest

from stagecut.models import build_model, model_names
from stagecut.models.families.llama import LlamaShape, llama
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE
from stagecut.planner.core.precision import Precision

OPAQUE = {"unet", "synthetic"}
NAMES = sorted(set(model_names()) - OPAQUE)


@pytest.fixture(params=NAMES, scope="module")
def model(request):
    return build_model(request.param)


def distinct_layers(model):
    """One of each kind; blocks repeat."""
    found = {}
    for layer in model.layers:
        found.setdefault((layer.kind, layer.operators), layer)
    return list(found.values())


def operator(model, layer, name):
    operators = next(each.operators for each in model.layers if each.name == layer)
    return next(each for each in operators if each.name == name)


def split_sizes(operator):
    return {split.dim: split.size for split in operator.splits}


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.FP32])
@pytest.mark.parametrize("name", NAMES)
def test_counts_of_a_layer_are_the_sums_over_its_operators(name, precision):
    """A tied matrix is held by the head's operator; saved bytes are the rest of the input, which is never negative."""
    for layer in distinct_layers(build_model(name, precision=precision)):
        assert layer.operators
        weights = sum(each.weight_bytes for each in layer.operators)
        assert weights == layer.params_bytes + layer.shared_params_bytes
        for field in ("forward_flops", "working_bytes"):
            assert sum(getattr(each, field) for each in layer.operators) == getattr(layer, field)


def test_every_layer_saves_its_input_and_what_its_operators_save(model):
    """The input has the bytes of the output before it."""
    for before, layer in pairwise(model.layers):
        assert layer.saved_input_bytes == before.output_bytes, layer.name


@pytest.mark.parametrize(
    ("name", "num_bytes"),
    [("gpt2-xl", 8 * 1024), ("bert-large", 2 * 8 * 512), ("vit-large", 2 * 3 * 224**2), ("vgg16", 2 * 3 * 224**2)],
)
def test_first_layer_saves_ids_or_an_image(name, num_bytes):
    """8 bytes per token id (BERT: and segment id), 2 bytes per element of the image."""
    assert build_model(name).layers[0].saved_input_bytes == num_bytes


def test_operators_take_what_earlier_ones_make(model):
    """By the tensor's name, with as many dimensions as it has."""
    for layer in distinct_layers(model):
        made = {}
        for each in layer.operators:
            for port in each.inputs:
                if port.tensor != INPUT:
                    assert len(port.dims) == len(made[port.tensor].dims), each.name
            fresh = {tensor.name: tensor for tensor in each.outputs}
            assert not made.keys() & fresh.keys()
            made |= fresh
        assert len({each.name for each in layer.operators}) == len(layer.operators)
        assert made[OUTPUT].num_bytes == layer.output_bytes
        assert not made[OUTPUT].saved


def test_what_is_neither_saved_nor_returned_is_taken(model):
    for layer in distinct_layers(model):
        taken = {port.tensor for each in layer.operators for port in each.inputs}
        for tensor in (tensor for each in layer.operators for tensor in each.outputs):
            assert tensor.saved or tensor.name in {*taken, OUTPUT}, tensor.name


def test_inputs_have_the_dimensions_of_the_output_before(model):
    """Where a classifier flattens an image, parts of the features are whole channels."""
    for before, layer in pairwise(model.layers):
        made = next(tensor for each in before.operators for tensor in each.outputs if tensor.name == OUTPUT)
        for each in layer.operators:
            for port in each.inputs:
                if port.tensor == INPUT and len(port.dims) != len(made.dims):
                    assert (made.dims[1], port.dims[1]) == ("channel", "feature")
                    assert split_sizes(each)["feature"] == before.operators[0].splits[1].size


def test_every_operator_is_divided_along_samples_and_dimensions_that_it_has(model):
    for layer in distinct_layers(model):
        for each in layer.operators:
            assert each.splits[0].dim == SAMPLE
            assert each.splits[0].size is None
            loop = {dim for tensors in (each.inputs, each.outputs, each.weights) for own in tensors for dim in own.dims}
            assert split_sizes(each).keys() <= loop
            assert all(size for size in [*split_sizes(each).values()][1:])


def test_tensors_hold_whole_numbers_for_every_part(model):
    """Bytes of what has a dimension are divided by as many parts as its split allows; a vocabulary is padded."""
    for layer in distinct_layers(model):
        for each in layer.operators:
            for own in (*each.outputs, *each.weights):
                for dim, size in split_sizes(each).items():
                    if dim in own.dims and size and dim != "vocabulary" and own.num_bytes:
                        assert own.num_bytes % size == 0, (layer.name, each.name, own.name, dim)


def test_keys_and_values_are_whole_where_tokens_are_divided():
    """Context parallelism: a part of the tokens attends to all."""
    queries, keys, values = operator(build_model("llama3-8b"), "block0.attention", "attention").inputs
    assert queries.dims == ("sample", "token", "head")
    assert keys.dims == values.dims == ("sample", "key token", "head")


def test_attention_is_divided_by_key_heads():
    """Llama 3 8B: 32 heads share 8 key heads; each of the three operators is divided by those."""
    model = build_model("llama3-8b")
    for name in ("qkv", "attention", "project"):
        assert split_sizes(operator(model, "block0.attention", name))["head"] == 8


def test_products_divided_along_their_input_are_sums():
    """The output of the projection does not have its heads, that of the second product not its width."""
    model = build_model("gpt2-xl")
    for layer, name, dim in (("attention", "project", "head"), ("feed-forward", "down", "width")):
        each = operator(model, f"block0.{layer}", name)
        assert dim in split_sizes(each)
        assert dim not in each.outputs[0].dims
        assert not each.passes_partial


def test_products_without_bias_pass_partial_sums():
    assert operator(build_model("llama3-8b"), "block0.attention", "project").passes_partial


def test_norms_of_a_bert_come_last():
    names = {
        name: [each.name for each in build_model(name).layers[1].operators] for name in ("gpt2-345m", "bert-large")
    }
    assert names["gpt2-345m"] == ["norm", "qkv", "attention", "project", "residual"]
    assert names["bert-large"] == ["qkv", "attention", "project", "residual", "norm"]


def test_experts_are_divided_by_expert_token_and_width():
    """8 experts of width 14336: 8 x 2 x 4096 x 14336 weights; every token is with 2 of them."""
    products = operator(build_model("mixtral-8x7b"), "block0.experts", "gate and up")
    assert split_sizes(products) == {"sample": None, "token": 4096, "expert": 8, "width": 14336}
    assert products.weights[0].dims == ("expert", "width", "hidden")
    assert products.weight_bytes == 2 * 8 * 2 * 4096 * 14336
    assert products.inputs[0].dims == ("sample", "token", "expert", "hidden")


def test_vocabulary_is_divided_as_if_padded():
    """50257 tokens are padded to 393 x 128 = 50304; the weights are those of 50257."""
    project = operator(build_model("gpt2-xl"), "head", "project")
    assert split_sizes(project)["vocabulary"] == 393 * 128
    assert project.weight_bytes == 2 * 50257 * 1600


def test_convolutions_are_divided_along_both_kinds_of_channels():
    """conv2-1 of VGG: from 64 to 128 channels."""
    convolution = operator(build_model("vgg16"), "conv2-1", "convolution")
    assert split_sizes(convolution) == {"sample": None, "channel": 128, "channel in": 64}
    assert convolution.weights[0].dims[:2] == ("channel", "channel in")


def test_shortcut_of_a_residual_block_is_the_input_or_its_projection():
    model = build_model("resnet50")
    shortcuts = [operator(model, layer, "sum").inputs[1].tensor for layer in ("block1-1", "block1-2")]
    assert shortcuts == ["projected", INPUT]


def test_blocks_share_their_operators():
    """Equal ones are the same object, so that what is computed for one need not be for another."""
    first, second = (build_model("gpt2-xl").layers[index].operators for index in (1, 3))
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_precision_doubles_what_is_not_of_a_size_of_its_own():
    """The statistics of attention are fp32 in every precision."""
    shape = LlamaShape(blocks=1, hidden=8, heads=2, key_heads=1, width=16, vocabulary=32)
    half, full = (
        llama(shape, 4).in_precision(precision, name="small", sequence_length=4)
        for precision in (Precision.FP16, Precision.FP32)
    )
    mixed, statistics = operator(half, "block0.attention", "attention").outputs
    assert operator(full, "block0.attention", "attention").outputs[0].num_bytes == 2 * mixed.num_bytes
    assert operator(full, "block0.attention", "attention").outputs[1] == statistics


@pytest.mark.parametrize("name", sorted(OPAQUE))
def test_layers_of_unknown_make_have_no_operators(name):
    assert {layer.operators for layer in build_model(name).layers} == {()}
