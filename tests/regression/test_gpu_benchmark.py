"""The benchmark for machines with a GPU: all but the GPU."""

import ctypes
import json

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu import driver as gpu
from benchmarks.gpu import stages as gpu_stages
from benchmarks.gpu.green_contexts import CudaDriver, GreenContextsUnavailableError, Resource, split
from benchmarks.gpu.layers import spans
from benchmarks.gpu.stages import StageFigures
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.measure.inspection import LayerFacts
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.io.files.profile import read_profile


@pytest.fixture
def one_thread():
    """Limit torch to one thread: stages are threads of this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_everything_runs_on_a_processor(tmp_path, capsys, one_thread):
    """Profile, both ways to share the device, and a file of results."""
    options = ("--device", "cpu", "--quick", "--models", "gpt-mini", "--output", str(tmp_path))
    assert gpu.main(options) == 0
    (written,) = (tmp_path / "models" / "measured").iterdir()
    profile = read_profile(written)
    assert profile.name == written.stem
    assert all(layer.times[0].samples == gpu.QUICK.sizes for layer in profile.layers)
    (results,) = (tmp_path / "benchmarks" / "results").iterdir()
    runs = json.loads(results.read_text())["models"]["gpt-mini"]["runs"]
    assert [run["sharing"] for run in runs] == ["threads", "equal streams"]
    assert all(run["predicted_s"] > 0 and run["measured_s"] > 0 for run in runs)
    assert "| feed-forward, backward (ms) |" in capsys.readouterr().out


def test_without_a_gpu_it_says_so_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unknown_model_is_bad_input(capsys, tmp_path):
    assert gpu.main(("--device", "cpu", "--models", "gpt-minni", "--output", str(tmp_path))) == 3
    assert "did you mean 'gpt-mini'" in capsys.readouterr().err


def test_stages_that_are_profiled_fit_in_memory():
    """Two micro-batches of 4 in flight keep 8 bytes per layer, one at work 4 more: two layers fit into 20 bytes."""
    assert spans(_facts(5), budget_bytes=20, in_flight=2, sizes=(1, 4)) == ((0, 2), (2, 4), (4, 5))


def test_a_layer_that_does_not_fit_is_profiled_alone():
    assert spans(_facts(3), budget_bytes=1, in_flight=2, sizes=(4,)) == ((0, 1), (1, 2), (2, 3))


def test_cuts_make_the_slowest_stage_as_fast_as_possible():
    """Work 3, 1, 1, 1, 2, 4: stages of 4, 4 and 4; of two stages the slower one has 6."""
    profile = _profile(1, 1 / 3, 1 / 3, 1 / 3, 2 / 3, 4 / 3)
    assert gpu_stages.equal_cuts(profile, 3, 1) == (0, 2, 5, 6)
    assert gpu_stages.equal_cuts(profile, 2, 1) == (0, 4, 6)


def test_stages_with_multiprocessors_of_their_own_are_simulated():
    """Two stages, four micro-batches, 1F1B: (4 + 1) x (1 + 2) s and the update."""
    stages = (StageFigures(forward_s=1.0, backward_s=2.0, update_s=0.5),) * 2
    plan = plan_of((0, 1, 2), micro_batch=2, num_microbatches=4)
    assert gpu_stages.simulated_s(stages, plan) == pytest.approx(15.5)


def test_stages_that_share_a_device_take_as_long_as_all_their_work():
    """Four micro-batches of 1 + 2 s on two stages, and two updates."""
    stages = (StageFigures(forward_s=1.0, backward_s=2.0, update_s=0.5),) * 2
    assert gpu_stages.shared_s(stages, 4) == pytest.approx(25.0)


def test_a_device_is_divided_once_into_parts_as_large_as_possible():
    """Two parts of 66 of 132 multiprocessors would need 72 each in groups of 8: there are two of 64."""
    library = _Library(alignment=8)
    parts = split(CudaDriver(library), Resource(num_multiprocessors=132), 2)
    assert [part.num_multiprocessors for part in parts] == [64, 64]


def test_a_device_too_small_for_the_parts_is_refused():
    with pytest.raises(GreenContextsUnavailableError, match="16 multiprocessors cannot be divided into 4 equal parts"):
        split(CudaDriver(_Library(alignment=8)), Resource(num_multiprocessors=16), 4)


def test_an_old_driver_has_no_green_contexts():
    with pytest.raises(GreenContextsUnavailableError, match="the driver has no cuGreenCtxCreate"):
        CudaDriver(object()).call("cuGreenCtxCreate")


def test_the_structure_of_the_driver_has_its_size():
    """CUdevResource of cuda.h: a kind, 92 bytes of padding, 48 bytes that begin with the number."""
    assert ctypes.sizeof(Resource) == 144
    assert Resource.num_multiprocessors.offset == 96


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80"),
        ("NVIDIA A100-PCIE-40GB", "a100-40-pcie"),
        ("Tesla T4", "t4"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GB300", "nvidia-gb300"),
    ],
)
def test_devices_of_the_catalogue_are_called_as_there(title, name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: title)
    assert gpu.catalogue_type(torch.device("cuda", 0)) == name


class _Library:
    """A driver that divides into parts of a multiple of some number."""

    def __init__(self, alignment):
        self._alignment = alignment

    def cuDevSmResourceSplitByCount(self, parts, found, whole, rest, flags, wanted):  # noqa: N802
        size = -(-wanted.value // self._alignment) * self._alignment
        count = min(len(parts), whole._obj.num_multiprocessors // size)
        for part in list(parts)[:count]:
            part.num_multiprocessors = size
        found._obj.value = count
        return 0


def _facts(count):
    layer = LayerFacts(
        name="layer",
        kind="layer",
        num_params=0,
        num_shared_params=0,
        forward_flops=1.0,
        saved_bytes=1.0,
        output_bytes=1.0,
        working_bytes=1.0,
        is_shareable=False,
        allocated_bytes=0.5,
    )
    return (layer,) * count


def _profile(*forward_s):
    """Backwards take twice as long."""
    tables = (
        TimeTable(device_type="gpu", samples=(1,), forward_s=(each,), backward_s=(2 * each,)) for each in forward_s
    )
    return ModelProfile(
        name="model", layers=tuple(Layer(name=f"layer{i}", times=(table,)) for i, table in enumerate(tables))
    )
