"""Sharded plans that were searched for a framework, read by its own code."""

import pytest

from stagecut.models import build_cluster, build_model
from stagecut.planner.core.frameworks import Framework
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.layer_graphs.degrees import roles_of_stages
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.writers.megatron import megatron_files
from stagecut.planner.io.writers.torchtitan import torchtitan_files
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.exported_plans import chains


def searched(framework, *kinds, tensor_parallel, model="llama3-8b", cluster="dgx-a100-16", micro_batches=(1, 2, 4)):
    """A plan within 5 % of the best, its degrees, and the problem."""
    problem = Problem(
        model=build_model(model, precision=Precision.BF16),
        cluster=build_cluster(cluster),
        job=Job(
            global_batch=64,
            optimizer=standard_optimizer("adamw", Precision.BF16),
            precision=Precision.BF16,
            micro_batches=micro_batches,
            schedules=(Schedule.ONE_F_ONE_B,),
            pipelines=(1,),
            replicas=(1,),
            tensor_parallel=(tensor_parallel,),
            sharding=tuple(map(Parallelism, kinds)),
            framework=framework,
        ),
    )
    plan = run(problem, "milp", SolveOptions(gap=0.05, time_limit_s=None)).plan
    (degrees,) = {roles.degrees for roles in roles_of_stages(problem.model, plan.stages)}
    return problem, plan, degrees


def ranked_devices(text):
    return [line.partition(": ")[2] for line in text.splitlines() if line.startswith("# rank")]


def test_megatron_counts_context_and_data_parallelism_as_planned():
    torch = pytest.importorskip("torch")
    pytest.importorskip("megatron.core", reason="megatron-core is not installed; it is in the extra `engines`")
    from megatron.core.parallel_state import RankGenerator
    from megatron.core.transformer import TransformerConfig

    problem, plan, degrees = searched(Framework.MEGATRON, "context", "zero1", tensor_parallel=8)
    text = megatron_files(problem, plan)["arguments.txt"]
    arguments = dict(line[2:].partition(" ")[::2] for line in text.splitlines() if line.startswith("--"))
    assert int(arguments["context-parallel-size"]) == degrees.context > 1
    assert "use-distributed-optimizer" in arguments
    devices, groups = ranked_devices(text), plan.num_groups
    sizes = {"tp": degrees.tensor, "cp": degrees.context, "dp": degrees.data, "pp": groups, "ep": 1}
    ranks = RankGenerator(**sizes, order="tp-cp-ep-dp-pp")
    assert {tuple(devices[rank] for rank in group) for group in ranks.get_ranks("pp")} == chains(plan)
    shared = [{devices[rank] for rank in group} for group in ranks.get_ranks("dp-cp")]
    assert all(any(group <= set(stage.devices) for stage in plan.stages) for group in shared)
    config = TransformerConfig(
        num_layers=32,
        hidden_size=4096,
        num_attention_heads=32,
        num_query_groups=8,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        context_parallel_size=degrees.context,
        cp_comm_type=arguments["cp-comm-type"],
        pipeline_model_parallel_size=groups,
        pipeline_model_parallel_layout=arguments.get("pipeline-model-parallel-layout"),
    )
    assert config.context_parallel_size == degrees.context


def test_torchtitan_has_weights_in_parts_beside_tensor_parallelism_and_stages(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    reason = "torchtitan is not installed; it is in the extra `engines`"
    titan = pytest.importorskip("torchtitan.config", reason=reason)
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from tests.engines.test_engine_torchtitan import IS_NEW, dims_of

    kinds = ("fsdp", "tensor", "sequence")
    problem, plan, degrees = searched(Framework.TORCHTITAN, *kinds, tensor_parallel=8)
    assert degrees.data > 1
    monkeypatch.chdir(tmp_path)
    files = torchtitan_files(problem, plan, actions=())
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    lines = files["torchtitan-0.3.flags"].splitlines()
    flags = [word for line in lines if not line.startswith("#") for word in line.split()]
    new, old = ["--module", "llama3", "--config", "llama3_8b", *flags], ["--job.config_file", "torchtitan-0.2.toml"]
    config = titan.ConfigManager().parse_args(new if IS_NEW else old)
    devices = ranked_devices(files["torchtitan-0.2.toml"])
    torch.distributed.init_process_group("fake", rank=0, world_size=len(devices), store=FakeStore())
    try:
        dims = dims_of(config, len(devices))
        dims.build_mesh()
        assert (dims.dp_shard, dims.tp, dims.pp) == (degrees.data, degrees.tensor, plan.num_groups)
        assert {devices[peer] for peer in dims.get_mesh("fsdp").mesh.tolist()} <= set(plan.stages[0].devices)
        if plan.num_groups > 1:
            assert tuple(devices[peer] for peer in dims.get_mesh("pp").mesh.tolist()) in chains(plan)
    finally:
        torch.distributed.destroy_process_group()
