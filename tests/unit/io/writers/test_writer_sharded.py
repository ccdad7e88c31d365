"""Sharded plans for other frameworks: their degrees, and what has none."""

import tomllib
from dataclasses import replace
from itertools import pairwise

import pytest

from stagecut.models import build_model
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.operators.strategy import LayerStrategy, StageSharding, Strategy, WeightStorage
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.writers.deepspeed import deepspeed_tree
from stagecut.planner.io.writers.megatron import megatron_arguments
from stagecut.planner.io.writers.torchtitan import torchtitan_toml

LLAMA = build_model("llama-mini", precision=Precision.BF16)
MIXTRAL = build_model("mixtral-8x7b", precision=Precision.BF16)


def split(operator, role):
    """What an operator divides along an axis of this role."""
    known = [own.dim for own in operator.splits]
    wanted = {
        "data": ["sample"],
        "context": ["token"],
        "tensor": ["head", "width", "vocabulary", "token"],
        "plain tensor": ["head", "width", "vocabulary", ""],
        "experts": ["expert", "sample"],
        "context experts": ["expert", "token"],
        "hidden": ["hidden", "token"],
    }
    return next(dim for dim in wanted[role] if dim in known or dim == "")


def sharding(model, mesh, roles, *, storage="replicated", start=0, stop=None):
    layers = tuple(
        LayerStrategy(
            operators=tuple(
                Strategy(splits=tuple(split(operator, role) for role in roles), storage=WeightStorage(storage))
                for operator in layer.operators
            )
        )
        for layer in model.layers[start:stop]
    )
    return StageSharding(mesh=mesh, layers=layers)


def problem_and_plan(mesh, *roles, model=LLAMA, replicas=1, cuts=None, storage="replicated", zero1=False):
    """Micro-batches of 8, two of them, on as many devices as are needed."""
    size = replicas
    for axis in mesh:
        size *= axis
    cuts = cuts or (0, model.num_layers)
    kind = DeviceType(name="gpu", peak_flops_per_s=((Precision.BF16, 1e12),), memory_bytes=1e12)
    server = Server(name="node", islands=(Island(device_type="gpu", count=size),), count=len(cuts))
    cluster = Cluster(name="many", device_types=(kind,), servers=(server,))
    job = Job(
        global_batch=16,
        optimizer=standard_optimizer("adamw", Precision.BF16),
        precision=Precision.BF16,
        micro_batches=(8,),
        zero1=zero1,
    )
    stages = tuple(
        Stage(
            start=start,
            stop=stop,
            devices=tuple(f"node-{index}/{slot}" for slot in range(size)),
            replicas=replicas,
            tensor_parallel=size // replicas,
            sharding=sharding(model, mesh, roles, storage=storage, start=start, stop=stop),
            warmup_depth=len(cuts) - 1 - index,
            forward_micro_batch=8,
            backward_micro_batch=8,
        )
        for index, (start, stop) in enumerate(pairwise(cuts))
    )
    plan = Plan(schedule=Schedule.ONE_F_ONE_B, micro_batch=8, num_microbatches=2, pipelines=(Pipeline(stages=stages),))
    return Problem(model=model, cluster=cluster, job=job), plan


def megatron(*arguments, **choices):
    lines = megatron_arguments(*problem_and_plan(*arguments, **choices)).splitlines()
    return dict(line[2:].partition(" ")[::2] for line in lines if line.startswith("--"))


def torchtitan(*arguments, **choices):
    return tomllib.loads(torchtitan_toml(*problem_and_plan(*arguments, **choices)))["parallelism"]


def deepspeed(*arguments, **choices):
    return deepspeed_tree(*problem_and_plan(*arguments, **choices))


def has(tree, wanted):
    return {key: tree.get(key) for key in wanted} == wanted


def test_data_and_tensor_parallelism_with_sequence_parallelism():
    """8 samples of a micro-batch over 2 replicas x 2 devices of data parallelism: 2 each."""
    choices = ((2, 4), "data", "tensor")
    written = megatron(*choices, replicas=2)
    sizes = {"tensor-model-parallel-size": "4", "sequence-parallel": "", "micro-batch-size": "2"}
    assert has(written, sizes | {"context-parallel-size": None, "use-distributed-optimizer": None})
    sharded = torchtitan(*choices, replicas=2, storage="weights")
    degrees = {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 2}
    assert has(sharded, {"tensor_parallel_degree": 4} | degrees)
    assert deepspeed(*choices, replicas=2)["topology"] == {"axes": ["pipe", "data", "model"], "dims": [1, 4, 4]}


def test_tensor_parallelism_may_leave_the_rest_whole():
    assert "sequence-parallel" not in megatron((4,), "plain tensor")
    with pytest.raises(UnsupportedError, match="its tensor parallelism divides tokens in between"):
        torchtitan((4,), "plain tensor")


def test_ranks_count_tensor_parallelism_fastest_whatever_the_mesh():
    """Device 4 t + d of the mesh (2, 4) of tensor and data has rank 2 d + t."""
    text = megatron_arguments(*problem_and_plan((2, 4), "tensor", "data"))
    assert [f"# rank {2 * d + t}: node-0/{4 * t + d}" in text for d in range(4) for t in range(2)] == [True] * 8


def test_zero1_inside_replicas():
    """Over all devices that sum gradients, or in each of two replicas on its own."""
    assert "use-distributed-optimizer" in megatron((4,), "data", storage="optimizer")
    assert deepspeed((4,), "data", storage="optimizer")["config"]["zero_optimization"] == {"stage": 1}
    apart = megatron((4,), "data", storage="optimizer", replicas=2)
    assert has(apart, {"use-distributed-optimizer": "", "num-distributed-optimizer-instances": "2"})
    together = megatron((4,), "data", storage="optimizer", replicas=2, zero1=True)
    assert has(together, {"use-distributed-optimizer": "", "num-distributed-optimizer-instances": None})


@pytest.mark.parametrize(
    ("storage", "strategy", "policy"),
    [("gradients", "optim_grads", "never"), ("weights", "optim_grads_params", "always")],
)
def test_weights_in_parts_are_fsdp(storage, strategy, policy):
    written = megatron((4,), "data", storage=storage)
    assert has(written, {"use-megatron-fsdp": "", "data-parallel-sharding-strategy": strategy})
    degrees = {"data_parallel_shard_degree": 4, "data_parallel_replicate_degree": 2}
    assert has(torchtitan((4,), "data", storage=storage, replicas=2), degrees | {"fsdp_reshard_after_forward": policy})


def test_context_parallelism_gathers_keys_and_values():
    assert has(megatron((2, 2), "data", "context"), {"context-parallel-size": "2", "cp-comm-type": "all_gather"})
    sharded = torchtitan((2, 2), "data", "context", storage="weights")
    assert has(sharded, {"context_parallel_degree": 2, "data_parallel_shard_degree": 2})


def test_experts_are_divided_over_devices_of_data_parallelism():
    written = megatron((2, 4), "data", "experts", model=MIXTRAL)
    assert has(written, {"expert-model-parallel-size": "4", "micro-batch-size": "1"})
    sharded = torchtitan((8,), "experts", model=MIXTRAL, storage="weights")
    assert has(sharded, {"expert_parallel_degree": 8, "data_parallel_shard_degree": 8})


@pytest.mark.parametrize(
    ("write", "arguments", "choices", "complaint"),
    [
        (megatron, ((4,), "hidden"), {}, "stage 0: an axis of 4 devices has no single meaning"),
        (megatron, ((4,), "data"), {"storage": "weights", "cuts": (0, 5, 10)}, "need a single stage"),
        (megatron, ((4,), "data"), {"replicas": 2, "zero1": True}, "needs it inside each as well, not 4 whole ones"),
        (
            megatron,
            ((2, 2), "context", "experts"),
            {"model": MIXTRAL},
            "experts are divided over devices of data, but not over those of context parallelism",
        ),
        (torchtitan, ((4,), "data"), {"storage": "optimizer"}, "it has ZeRO-1 in pipelines only"),
        (torchtitan, ((4,), "context"), {}, "context 4 without weights in parts"),
        (
            torchtitan,
            ((2, 2), "experts", "tensor"),
            {"model": MIXTRAL, "storage": "weights"},
            "its experts are not divided by tensor parallelism as well",
        ),
        (
            torchtitan,
            ((2, 2), "context", "context experts"),
            {"model": MIXTRAL, "storage": "weights"},
            "not 2 of 4",
        ),
        (deepspeed, ((4,), "data"), {"storage": "gradients"}, "stores no gradients in parts"),
        (deepspeed, ((4,), "data"), {"storage": "optimizer", "replicas": 2}, "or none; solve with --zero1"),
        (deepspeed, ((4,), "context"), {}, "no context parallelism, got 4"),
        (deepspeed, ((4,), "experts"), {"model": MIXTRAL}, "no expert parallelism, got 4"),
    ],
)
def test_what_a_framework_lacks_is_refused(write, arguments, choices, complaint):
    with pytest.raises(UnsupportedError) as caught:
        write(*arguments, **choices)
    assert complaint in "\n".join(caught.value.complaints)


def test_stages_divided_differently_are_refused():
    problem, plan = problem_and_plan((4,), "data", cuts=(0, 5, 10))
    first, second = plan.stages
    other = replace(second, sharding=sharding(LLAMA, (4,), ("tensor",), start=5))
    mixed = replace(plan, pipelines=(Pipeline(stages=(first, other)),))
    with pytest.raises(UnsupportedError, match="alike, got stage 0: data 4; stage 1: tensor 4, sequence"):
        deepspeed_tree(problem, mixed)


def test_an_operator_unlike_the_others_on_an_axis_is_refused():
    problem, plan = problem_and_plan((4,), "tensor")
    (stage,) = plan.stages
    layers = list(stage.sharding.layers)
    operators = list(layers[1].operators)
    operators[3] = Strategy(splits=("token",))
    layers[1] = LayerStrategy(operators=tuple(operators))
    changed = replace(stage, sharding=replace(stage.sharding, layers=tuple(layers)))
    with pytest.raises(UnsupportedError, match=r"operator 'project' of layer 'block0.attention' is divided by token"):
        megatron_arguments(problem, replace(plan, pipelines=(Pipeline(stages=(changed,)),)))


def test_weights_stored_in_several_ways_are_refused():
    problem, plan = problem_and_plan((4,), "data", storage="weights")
    (stage,) = plan.stages
    whole = sharding(LLAMA, (4,), ("data",)).layers
    half = replace(stage, sharding=replace(stage.sharding, layers=stage.sharding.layers[:5] + whole[5:]))
    with pytest.raises(UnsupportedError, match="weights must be stored alike, got"):
        megatron_arguments(problem, replace(plan, pipelines=(Pipeline(stages=(half,)),)))
