"""Galvatron's profiles, of our own figures."""

import json

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision

MIB = 2**20
TIMES = {
    "layernum[2]_bsz1_seq64": 15,
    "layertype_0_bsz1_seq64": 3,
    "layertype_other_bsz1_seq64": 9,
    "layertype_0_bsz2_seq64": 2.5,
    "layertype_other_bsz2_seq64": 6,
    "layertype_0_bsz1_seq32": 1.5,
}
END = {"64": {"model_states": {"1": 64}, "activation": {"1": 5}}}
MEMORY = {
    "layertype_0_sp": {"64": {"parameter_size": 8, "tp_activation_per_bsz_dict": {"1": 14, "checkpoint": 0.5}}},
    "other_memory_pp_on_first_sp": END,
    "other_memory_pp_on_last_sp": END,
}


@pytest.fixture
def files(tmp_path):
    def write(times=TIMES, memory=MEMORY):
        paths = tmp_path / "computation_profiling_bf16_x.json", tmp_path / "memory_profiling_bf16_x.json"
        for path, tree in zip(paths, (times, memory), strict=True):
            path.write_text(json.dumps(tree))
        return paths

    return write


def test_times_are_of_a_batch_and_backwards_take_twice_as_long(read, files):
    """Two samples of 2.5 ms are 5 ms forward, 10 ms backward; what is beside the layers counts for the head."""
    profile = read(*files(), device_type="gpu", num_layers=(3,)).profile
    assert [layer.name for layer in profile.layers] == ["embedding", "layer0", "layer1", "layer2", "head"]
    table = profile.layers[1].table("gpu")
    assert (table.samples, table.forward_s, table.backward_s[1]) == ((1, 2), pytest.approx((0.003, 0.005)), 0.010)
    assert profile.layers[-1].table("gpu").forward_s == pytest.approx((0.009, 0.012))


def test_bytes_are_of_the_precision_asked_for(read, files):
    """8 MiB in fp32 are 4 in bf16; 64 MiB of states are 16 of weights in fp32, 8 in bf16."""
    profile = read(*files(), device_type="gpu", num_layers=(1,), precision=Precision.BF16).profile
    embedding, layer, _ = profile.layers
    assert layer.params_bytes == 4 * MIB
    assert profile.sequence_length == 64
    assert (layer.saved_bytes, layer.output_bytes, embedding.params_bytes) == (14 * MIB, 0.5 * MIB, 8 * MIB)


def test_left_out_lengths_and_another_precision_are_named(read, files):
    notes = read(*files(), device_type="gpu", num_layers=(1,)).notes
    assert any(note.startswith("sequence lengths 32: left out; 64 is taken") for note in notes)
    assert any("use --precision bf16" in note for note in notes)


def test_number_of_layers_is_asked_for_or_read(read, files):
    with pytest.raises(BadInputError, match="give it with --layers"):
        read(*files(), device_type="gpu")
    stated = {**MEMORY, "model_config": {"n_layers": 2}}
    assert read(*files(memory=stated), device_type="gpu").profile.num_layers == 4


def test_one_file_alone_is_refused(read, files):
    with pytest.raises(BadInputError, match="give two files"):
        read(files()[0], device_type="gpu", num_layers=(1,))


def test_times_of_parts_of_layers_are_refused(read, files):
    with pytest.raises(BadInputError, match="has no times of whole layers"):
        read(*files(times={"layertype_0_bsz1_seq64_mlp": 3}), device_type="gpu", num_layers=(1,))
    with pytest.raises(BadInputError, match="has no times of whole layers"):
        read(*files(times={"layertype_0_bsz1_seq[64,64]": 3}), device_type="gpu", num_layers=(1,))


TWO_KINDS = {
    "layertype_0_bsz4_seq512": 0.5,
    "layertype_1_bsz4_seq256": 0.75,
    "layertype_other_bsz4_seq[512,256]": 2,
}
END_OF_TWO = {"[512,256]": {"model_states": {"1": 32}, "activation": {"1": 4}}}
MEMORY_OF_TWO = {
    "layertype_0_sp": {"512": {"parameter_size": 8, "tp_activation_per_bsz_dict": {"1": 14, "checkpoint": 1}}},
    "layertype_1_sp": {"256": {"parameter_size": 12, "tp_activation_per_bsz_dict": {"1": 20, "checkpoint": 0.5}}},
    "other_memory_pp_on_first_sp": END_OF_TWO,
    "other_memory_pp_on_last_sp": END_OF_TWO,
}


def test_kinds_of_layers_follow_one_another(read, files):
    """The last layer of the first kind sends what the first one of the second kind takes in."""
    profile = read(*files(TWO_KINDS, MEMORY_OF_TWO), device_type="gpu", num_layers=(2, 1)).profile
    assert [layer.saved_bytes / MIB for layer in profile.layers] == [4, 14, 14, 20, 4]
    assert [layer.params_bytes / MIB for layer in profile.layers] == [8, 8, 8, 12, 8]
    assert [layer.output_bytes / MIB for layer in profile.layers] == [1, 1, 0.5, 0.5, 0]
    times = [layer.table("gpu").forward_s[0] for layer in profile.layers]
    assert times == pytest.approx([0, 0.002, 0.002, 0.003, 0.008])
    assert profile.sequence_length is None


def test_as_many_numbers_of_layers_as_kinds_are_asked_for(read, files):
    for num_layers in (None, (3,), (1, 2, 3)):
        with pytest.raises(BadInputError, match=r"has 2 kinds of layers; .*--layers 24,24"):
            read(*files(TWO_KINDS, MEMORY_OF_TWO), device_type="gpu", num_layers=num_layers)
    with pytest.raises(BadInputError, match="has one kind of layers; give one number with --layers"):
        read(*files(), device_type="gpu", num_layers=(1, 2))
