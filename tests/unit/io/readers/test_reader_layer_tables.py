"""Tables of layer times."""

import pytest

from stagecut.models import build_model
from stagecut.planner.chains.coarsening import by_blocks
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.readers.formats import Format, open_foreign


def test_times_by_device_size_and_degree(read, foreign):
    """Layer 1 takes 4 ms forward for a sample on the fast device, three times as long on the slow one."""
    conversion = read(foreign / "fast.json", foreign / "slow.json")
    layer = conversion.profile.layers[1]
    assert layer.table("fast").samples == (1, 2, 4)
    assert layer.table("fast").forward_s == pytest.approx((0.004, 0.008, 0.016))
    assert layer.table("slow", 2).backward_s == pytest.approx((0.012, 0.024, 0.048))
    assert "no bytes" in conversion.notes[0]


def test_bytes_come_from_a_profile_with_a_layer_for_each_block(read, foreign, changed):
    """llama-mini has an embedding, 4 blocks of two layers, and a head: 6 layers where a block is one."""

    def change(tree):
        for by_degree in tree.values():
            for by_layer in by_degree.values():
                by_layer.update({"4": by_layer["2"], "5": by_layer["3"]})

    model = build_model("llama-mini", precision=Precision.FP32)
    profile = read(changed(foreign / "fast.json", change), bytes_from=model).profile
    assert profile.num_params == pytest.approx(model.num_params)
    assert profile.layers[1].params_bytes == model.layers[1].params_bytes + model.layers[2].params_bytes
    assert profile.boundary_bytes().tolist() == by_blocks(model).boundary_bytes().tolist()
    assert profile.sequence_length == model.sequence_length


def test_bytes_of_another_model_are_refused(read, foreign):
    with pytest.raises(BadInputError, match="has 10 layers in 6 blocks, but the tables have 4 layers"):
        read(foreign / "fast.json", bytes_from=build_model("llama-mini", precision=Precision.FP32))


def test_all_faults_are_told(read, foreign, changed):
    def change(tree):
        tree["2"]["1"]["0"] = [1]
        tree["2"]["2"]["1"][1] = -3
        tree["two"] = {}

    with pytest.raises(BadInputError) as caught:
        read(changed(foreign / "fast.json", change))
    text = str(caught.value)
    for part in (
        "2.1.0: must be a list [forward, backward, ...], got a list of 1",
        "2.2.1[1]: must be a number",
        "two: the key must be a micro-batch size",
    ):
        assert part in text


def _without_last_layer(tree):
    for by_degree in tree.values():
        for by_layer in by_degree.values():
            del by_layer["3"]


def test_file_with_another_number_of_layers_is_left_out_and_named(read, foreign, changed):
    conversion = read(foreign / "slow.json", changed(foreign / "fast.json", _without_last_layer))
    assert {table.device_type for layer in conversion.profile.layers for table in layer.times} == {"slow"}
    assert any("fast.json: left out: it has 3 layers, not 4" in note for note in conversion.notes)


def test_size_without_times_of_a_layer_is_left_out_and_named(read, foreign, changed):
    """Without layer 2 at one sample on one device, sizes 2 and 4 remain there."""
    conversion = read(changed(foreign / "fast.json", lambda tree: tree["1"]["1"].pop("2")))
    assert conversion.profile.layers[0].table("fast").samples == (2, 4)
    note = "micro-batch size 1 on 1 device: left out: no times for layer 2 of 0 to 3"
    assert any(note in each for each in conversion.notes)


def test_gpu_without_single_device_times_is_left_out_and_refused_alone(read, foreign, changed):
    def change(tree):
        for by_degree in tree.values():
            del by_degree["1"]

    shared_only = changed(foreign / "fast.json", change)
    conversion = read(foreign / "slow.json", shared_only)
    assert any("left out: it has no times for a single device, only for 2" in note for note in conversion.notes)
    with pytest.raises(BadInputError, match="no times for a single device"):
        read(shared_only)


def test_degree_that_another_gpu_lacks_is_named(read, foreign, changed):
    def change(tree):
        for by_degree in tree.values():
            by_degree.pop("2", None)

    conversion = read(foreign / "slow.json", changed(foreign / "fast.json", change))
    assert any(note.startswith("fast: no times for 2 devices") for note in conversion.notes)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("piper.json", Format.PIPER),
        ("graph.txt", Format.PIPEDREAM),
        ("workload.json", Format.DNN_PARTITIONING),
        ("fast.json", Format.LAYER_TABLES),
    ],
)
def test_formats_are_recognised(foreign, name, kind):
    assert open_foreign(str(foreign / name)).format is kind


def test_an_unknown_format_is_refused_with_those_known(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"layers": []}')
    with pytest.raises(BadInputError, match=r"name it with --from, one of piper, pipedream"):
        _ = open_foreign(str(path)).format


def test_several_graphs_are_refused(read, foreign):
    with pytest.raises(BadInputError, match="takes a single file; give"):
        read(foreign / "piper.json", foreign / "piper.json")
