"""Exports for DeepSpeed, read by its configuration class, its topology and its pipeline module."""

import importlib
import importlib.util

import pytest

from tests.exported_plans import CASES, accepted, built, chains, exported

torch = pytest.importorskip("torch")
deepspeed = pytest.importorskip("deepspeed", reason="deepspeed is not installed; it is in the extra `engines`")

from deepspeed.runtime.config import DeepSpeedConfig  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402


@pytest.fixture
def ranks(monkeypatch):
    """A function that makes this process one rank of many, without the others."""
    backend = importlib.import_module("deepspeed.comm.torch")

    monkeypatch.setattr(backend, "build_shm_op", lambda: None)  # it would compile an operator that nobody calls

    def be(rank, world_size):
        stop()
        for name, value in {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": world_size, "DS_ACCELERATOR": "cpu"}.items():
            monkeypatch.setenv(name, str(value))
        torch.distributed.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
        deepspeed.init_distributed(dist_backend="fake", verbose=False)

    def stop():
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        deepspeed.comm.comm.cdb = None

    yield be
    stop()


def cut_module(case, folder):
    """The module of the export, beside its files."""
    for name, text in exported(case, "deepspeed").items():
        (folder / name).write_text(text)
    spec = importlib.util.spec_from_file_location("cut_module", folder / "cut_module.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@accepted("deepspeed")
def test_deepspeed_builds_the_stages_of_the_plan_on_its_devices(case, ranks, tmp_path):
    problem, plan = built(case)
    module = cut_module(case, tmp_path)
    devices, found = module.PLAN["devices_by_rank"], set()
    for rank, device in enumerate(devices):
        if device not in {chain[0] for chain in chains(plan)} and rank % 5:
            continue  # every first stage, and some of the others
        ranks(rank, len(devices))
        layers = [torch.nn.Identity() for _ in problem.model.layers]
        built_here = module.CutModule(layers, loss_fn=lambda output, _: output)
        group = next(group for group, stage in enumerate(plan.stages) if device in devices_of(plan, group))
        assert (built_here._local_start, built_here._local_stop) == (plan.stages[group].start, plan.stages[group].stop)
        assert len(built_here.forward_funcs) == plan.stages[group].stop - plan.stages[group].start
        found.add(tuple(devices[peer] for peer in built_here.mpu().pp_group))
    assert found == chains(plan)


@accepted("deepspeed")
def test_deepspeed_accepts_the_configuration(case, ranks, tmp_path):
    _, plan = built(case)
    module = cut_module(case, tmp_path)
    ranks(0, len(module.PLAN["devices_by_rank"]))
    built_here = module.CutModule([torch.nn.Identity() for _ in module.PLAN["layers"]])
    config = DeepSpeedConfig(module.CONFIG, mpu=built_here.mpu())
    assert config.zero_optimization_stage == int(case.zero1)
    assert config.gradient_accumulation_steps == plan.num_microbatches
    assert config.bfloat16_config.enabled


def test_a_list_of_other_layers_is_refused_by_the_module(ranks, tmp_path):
    module = cut_module(CASES["bert-large on one stage"], tmp_path)
    ranks(0, 8)
    with pytest.raises(ValueError, match="got 3 layers, but the plan cuts 50"):
        module.CutModule([torch.nn.Identity()] * 3)


def devices_of(plan, group):
    return {device for pipeline in plan.pipelines for device in pipeline.stages[group].devices}
