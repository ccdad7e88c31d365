"""Exports for torchtitan, read by its own configuration manager, splitter and schedules: 0.2 or 0.3, as installed."""

from importlib.metadata import version

import pytest

from tests.exported_plans import CASES, accepted, built, chains, exported

torch = pytest.importorskip("torch")
pytest.importorskip("torchtitan", reason="torchtitan is not installed; it is in the extra `engines`")

from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.distributed.pipeline_parallel import pipeline_llm  # noqa: E402

from stagecut.planner.io.writers.blocks import stage_blocks  # noqa: E402
from stagecut.planner.io.writers.uniform_plan import cuts_of  # noqa: E402

IS_NEW = not version("torchtitan").startswith("0.2.")
HEAD = "lm_head" if IS_NEW else "output"


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """A function that has torchtitan read an export."""
    monkeypatch.chdir(tmp_path)

    def configure(case):
        for name, text in exported(case, "torchtitan").items():
            (tmp_path / name).write_text(text)
        if not IS_NEW:
            return ConfigManager().parse_args(["--job.config_file", "torchtitan-0.2.toml"])
        lines = (tmp_path / "torchtitan-0.3.flags").read_text().splitlines()
        flags = [word for line in lines if not line.startswith("#") for word in line.split()]
        return ConfigManager().parse_args(["--module", "llama3", "--config", "llama3_8b", *flags])

    return configure


@pytest.fixture
def start():
    """A function that makes this process one rank of many, without the others."""

    def be(rank, world_size):
        stop()
        torch.distributed.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())

    def stop():
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    yield be
    stop()


def dims_of(config, world_size):
    parallelism = config.parallelism
    if IS_NEW:
        return ParallelDims.from_config(parallelism, world_size)
    return ParallelDims(
        dp_replicate=parallelism.data_parallel_replicate_degree,
        dp_shard=parallelism.data_parallel_shard_degree,
        cp=parallelism.context_parallel_degree,
        tp=parallelism.tensor_parallel_degree,
        pp=parallelism.pipeline_parallel_degree,
        ep=parallelism.expert_parallel_degree,
        etp=parallelism.expert_tensor_parallel_degree,
        world_size=world_size,
    )


def pipelined(config, dims, *, parallelize=lambda part, *_, **__: part):
    """Schedule and parts of a Llama of 32 layers without memory, on this rank."""
    device, loss = torch.device("cpu"), lambda output, _: output
    if not IS_NEW:
        from torchtitan.models.llama3 import llama3_args
        from torchtitan.models.llama3.model.model import Transformer

        with torch.device("meta"):
            model = Transformer(llama3_args["8B"])
        return pipeline_llm(model, dims, config, device, llama3_args["8B"], parallelize, loss)[:2]
    spec = config.model_spec.model
    spec.update_from_config(config=config)
    with torch.device("meta"):
        model = spec.build()
    return pipeline_llm(
        model,
        parallel_dims=dims,
        training=config.training,
        parallelism=config.parallelism,
        compile_config=config.compile,
        ac_config=config.activation_checkpoint,
        dump_folder=".",
        device=device,
        model_config=spec,
        parallelize_fn=parallelize,
        loss_fn=loss,
    )[:2]


def has(part, name):
    return getattr(part, name, None) is not None


@accepted("torchtitan")
def test_torchtitan_builds_the_stages_of_the_plan_on_its_devices(case, configured, start):
    problem, plan = built(case)
    config, blocks = configured(case), stage_blocks(problem.model, cuts_of(plan))
    text = exported(case, "torchtitan")["torchtitan-0.2.toml"]
    devices = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("# rank")]
    if plan.num_groups == 1:
        start(0, len(devices))
        assert dims_of(config, len(devices)).dp_replicate == case.replicas
        return
    for group in range(plan.num_groups):
        rank = group * len(devices) // plan.num_groups
        start(rank, len(devices))
        dims = dims_of(config, len(devices))
        dims.build_mesh()
        assert tuple(devices[peer] for peer in dims.get_mesh("pp").mesh.tolist()) in chains(plan)
        schedule, parts = pipelined(config, dims)
        assert schedule._n_microbatches == plan.num_microbatches
        for part, wanted in zip(parts, blocks[group :: plan.num_groups], strict=True):
            assert [int(name) for name in part.layers] == list(wanted.blocks)
            assert has(part, "tok_embeddings") == wanted.embedding
            assert has(part, "norm") == has(part, HEAD) == wanted.head


@accepted("torchtitan")
def test_torchtitan_accepts_the_sizes(case, configured):
    """Its trainer asks that local batches on all ranks of data parallelism divide the global batch."""
    _, plan = built(case)
    config = configured(case)
    training, parallelism = config.training, config.parallelism
    ranks = parallelism.data_parallel_replicate_degree * parallelism.data_parallel_shard_degree
    assert training.global_batch_size % (training.local_batch_size * ranks) == 0
    rounds = training.global_batch_size // (training.local_batch_size * ranks)
    assert rounds == (plan.num_microbatches if plan.num_groups == 1 else 1)
    assert parallelism.data_parallel_shard_degree == (case.replicas * case.pipelines if case.zero1 else 1)


@pytest.mark.skipif(IS_NEW, reason="torchtitan 0.3 wraps whole weights as well")
def test_torchtitan_itself_refuses_copies_of_whole_weights_in_pipelines(configured, start):
    """What the export refuses: the ZeRO-1 of an accepted plan taken back."""
    from torchtitan.models.llama3.infra.parallelize import parallelize_llama

    config = configured(CASES["llama with replicas and ZeRO-1"])
    config.parallelism.data_parallel_replicate_degree = 4
    config.parallelism.data_parallel_shard_degree = 1
    start(0, 32)
    dims = dims_of(config, 32)
    with pytest.raises(RuntimeError, match="DDP has not supported > 1D parallelism"):
        pipelined(config, dims, parallelize=parallelize_llama)
