"""Metis's profile data, of our own figures."""

import json

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.readers.conversion import Choices
from stagecut.planner.io.readers.formats import TIME_UNITS, Format, convert, open_foreign
from stagecut.planner.io.readers.metis import measurement_of


@pytest.fixture
def files(tmp_path):
    """Two layers on one A100 at 1 and 3 samples, on two at 1 sample: 30 ms a sample and layer, 18 ms on two."""

    def write(name, layer_ms, memory_mb):
        tree = {
            "model": {"parameters": {"parameters_per_layer_bytes": [400, 200]}},
            "execution_time": {"layer_compute_total_ms": layer_ms},
            "execution_memory": {"layer_memory_total_mb": memory_mb},
        }
        path = tmp_path / f"DeviceType.{name}.json"
        path.write_text(json.dumps(tree))
        return path

    return [
        write("A100_tp1_bs1", [30, 30], [10, 20]),
        write("A100_tp1_bs3", [90, 90], [14, 26]),
        write("A100_tp2_bs1", [18, 18], [7]),
    ]


def _read(paths):
    choices = [
        Choices(name="m", device_type=measurement_of(str(path)).device_type, time_unit=TIME_UNITS[Format.METIS])
        for path in paths
    ]
    opened = [open_foreign(str(path)) for path in paths]
    assert {each.format for each in opened} == {Format.METIS}
    return convert(opened, Format.METIS, choices)


def test_sizes_and_degrees_come_from_the_names(files):
    """A third of 30 ms is the forward; on two devices a third of 18 ms."""
    layer = _read(files).profile.layers[0]
    assert layer.table("A100").samples == (1, 3)
    assert layer.table("A100").forward_s == pytest.approx((0.010, 0.030))
    assert layer.table("A100", 2).backward_s == pytest.approx((0.012,))


def test_weights_are_stated_and_activations_are_the_growth_of_memory(files):
    """Memory of layer 1 grows by 6 MB from 1 to 3 samples: 3 MB a sample."""
    layers = _read(files).profile.layers
    assert [layer.params_bytes for layer in layers] == [400, 200]
    assert layers[1].saved_bytes == 3 * 2**20


def test_activations_without_a_second_size_count_as_0_and_a_note_says_so(files):
    conversion = _read(files[:1])
    assert conversion.profile.layers[0].saved_bytes == 0
    assert any("activations count as 0" in note for note in conversion.notes)


def test_name_without_degree_and_size_is_refused(files, tmp_path):
    path = tmp_path / "a100.json"
    path.write_text(files[0].read_text())
    choices = [Choices(name="m", device_type="a100", time_unit=TIME_UNITS[Format.METIS])]
    with pytest.raises(BadInputError, match=r"must end in _tpN_bsN\.json"):
        convert([open_foreign(str(path))], Format.METIS, choices)
