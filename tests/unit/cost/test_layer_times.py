"""Seconds of single layers: measured, interpolated, or estimated by the roofline."""

from dataclasses import replace

import pytest

from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.precision import Precision
from stagecut.planner.cost.layer_times import interpolate, layer_times


def device(**figures):
    peak = ((Precision.FP16, 10.0), (Precision.FP32, 5.0))
    return DeviceType(name="gpu", memory_bytes=1.0, **({"peak_flops_per_s": peak} | figures))


def model(*layers, precision=Precision.FP16):
    return ModelProfile(name="layers", layers=layers, precision=precision)


HEAVY = Layer(name="heavy", forward_flops=20.0, params_bytes=4.0, saved_bytes=2.0, output_bytes=2.0)
LIGHT = Layer(name="light", forward_flops=1.0, params_bytes=4.0, saved_bytes=2.0, output_bytes=2.0)


def test_compute_bound_layer_runs_at_the_attainable_rate():
    """2 samples x 20 FLOP at 10 x 0.5 FLOP/s: 8 s, beside (4 + 2 x 4) / 4 = 3 s for the bytes."""
    forward_s, backward_s = layer_times(model(HEAVY), device(efficiency=0.5, memory_bandwidth_bytes_per_s=4.0), 2)
    assert (forward_s.tolist(), backward_s.tolist()) == ([8.0], [16.0])


def test_memory_bound_layer_runs_at_the_memory_bandwidth():
    """2 x 1 / 5 = 0.4 s for the FLOP, 3 s for the bytes; weights are read once, whatever the samples."""
    forward_s, backward_s = layer_times(model(LIGHT), device(efficiency=0.5, memory_bandwidth_bytes_per_s=4.0), 2)
    assert (forward_s.tolist(), backward_s.tolist()) == ([3.0], [6.0])


def test_every_layer_pays_its_launch_once_in_each_direction():
    forward_s, backward_s = layer_times(model(HEAVY, LIGHT), device(launch_s=0.25), 1)
    assert forward_s.tolist() == [2.25, 0.35]
    assert backward_s.tolist() == [4.25, pytest.approx(0.45)]


def test_rate_is_that_of_the_models_precision():
    forward_s, _ = layer_times(model(HEAVY, precision=Precision.FP32), device(), 1)
    assert forward_s.tolist() == [4.0]


def test_half_a_sample_takes_half_the_flops():
    forward_s, _ = layer_times(model(HEAVY), device(), 0.5)
    assert forward_s.tolist() == [1.0]


def measured(name, device_type):
    table = TimeTable(device_type=device_type, samples=(1,), forward_s=(7.0,), backward_s=(9.0,))
    return Layer(name=name, forward_flops=20.0, times=(table,))


def test_measured_times_win_on_their_own_device_type_only():
    forward_s, backward_s = layer_times(model(measured("a", "gpu"), measured("b", "other")), device(launch_s=1.0), 2)
    assert (forward_s.tolist(), backward_s.tolist()) == ([14.0, 5.0], [18.0, 9.0])


def test_device_without_a_rate_needs_measured_times_of_every_layer():
    unrated = device(peak_flops_per_s=())
    assert layer_times(model(measured("a", "gpu")), unrated, 1)[0].tolist() == [7.0]
    with pytest.raises(BadInputError, match="device type 'gpu' has neither a peak rate nor measured times"):
        layer_times(model(measured("a", "gpu"), HEAVY), unrated, 1)


def test_shared_layer_takes_its_part_of_the_time_and_a_whole_launch():
    """HEAVY on four devices: 20 / 10 / 4 s, LIGHT cannot be shared."""
    shared = replace(HEAVY, tensor_parallel_bytes=0.0)
    forward_s, backward_s = layer_times(model(shared, LIGHT), device(launch_s=0.25), 1, 4)
    assert forward_s.tolist() == [0.75, 0.35]
    assert backward_s.tolist() == [1.25, pytest.approx(0.45)]


def test_times_measured_on_as_many_devices_win():
    """Two devices were measured; for four the times of one are divided."""
    pair = TimeTable(device_type="gpu", tensor_parallel=2, samples=(1,), forward_s=(5.0,), backward_s=(6.0,))
    alone = measured("b", "gpu")
    both = replace(alone, name="a", tensor_parallel_bytes=0.0, times=(*alone.times, pair))
    times = [layer_times(model(both, alone), device(), 1, degree) for degree in (1, 2, 4)]
    assert [forward_s.tolist() for forward_s, _ in times] == [[7.0, 7.0], [5.0, 7.0], [1.75, 7.0]]
    assert [backward_s.tolist() for _, backward_s in times] == [[9.0, 9.0], [6.0, 9.0], [2.25, 9.0]]


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [(1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (6, 4.0), (8, 5.0), (12, 7.0), (0.5, 0.25)],
)
def test_table_is_piecewise_linear(samples, seconds):
    """1 s at 2, 3 s at 4, 5 s at 8 samples: 0.5 s each below 2; 1, then 0.5 s more for each one above."""
    assert interpolate((2, 4, 8), (1.0, 3.0, 5.0), samples) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize(("samples", "seconds"), [(1, 1.5), (2, 3.0), (6, 9.0)])
def test_single_size_is_scaled_in_proportion(samples, seconds):
    assert interpolate((2,), (3.0,), samples) == seconds


def test_table_never_falls_beyond_its_end():
    assert interpolate((1, 2), (5.0, 3.0), 10) == 3.0
