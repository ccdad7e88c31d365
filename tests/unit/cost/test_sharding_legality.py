"""Whether a stage is divided as its job and its operators allow."""

from dataclasses import replace

import pytest

from stagecut.models import build_model
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, LayerStrategy, StageSharding, Strategy, WeightStorage
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.cost.memory_parts import memory_parts

LLAMA = build_model("llama-mini", precision=Precision.FP16)


def problem(*kinds):
    kind = DeviceType(name="gpu", peak_flops_per_s=((Precision.FP16, 1e12),), memory_bytes=1e12)
    server = Server(name="node", islands=(Island(device_type="gpu", count=4),))
    job = Job(
        global_batch=8,
        optimizer=standard_optimizer("adamw", Precision.FP16),
        micro_batches=(8,),
        sharding=tuple(map(Parallelism, kinds)) or None,
    )
    return Problem(model=LLAMA, cluster=Cluster(name="one", device_types=(kind,), servers=(server,)), job=job)


def plan(*, storage="replicated", changed=None):
    """The whole model on four devices that divide samples, but for the operators in `changed`."""
    layers = tuple(
        LayerStrategy(
            operators=tuple(
                Strategy(
                    splits=((changed or {}).get((layer.name, own.name), "sample"),),
                    storage=WeightStorage(storage if own.weights else "replicated"),
                )
                for own in layer.operators
            )
        )
        for layer in LLAMA.layers
    )
    stage = Stage(
        start=0,
        stop=LLAMA.num_layers,
        devices=tuple(f"node/{slot}" for slot in range(4)),
        tensor_parallel=4,
        sharding=StageSharding(mesh=(4,), layers=layers),
        warmup_depth=1,
        forward_micro_batch=8,
        backward_micro_batch=8,
    )
    return Plan(
        schedule=Schedule.ONE_F_ONE_B, micro_batch=8, num_microbatches=1, pipelines=(Pipeline(stages=(stage,)),)
    )


def faults_of(*kinds, **changes):
    return faults(CostModel(problem(*kinds)), plan(**changes))


def test_what_the_job_allows_is_legal():
    assert faults_of("data") == ()
    assert faults_of("fsdp", storage="weights") == ()


QKV, DOWN = ("block0.attention", "qkv"), ("block1.feed-forward", "down")


@pytest.mark.parametrize(
    ("kinds", "changes", "fault"),
    [
        ((), {}, "stage 0: operators are divided each in its own way, but the job allows sharding none"),
        (
            ("data",),
            {"storage": "weights"},
            "operator 'tokens' is divided by sample, weights; the job allows only data",
        ),
        (("data",), {"changed": {QKV: "width"}}, "layer 'block0.attention': operator 'qkv' has no dimension 'width'"),
        (("data",), {"changed": {QKV: "head"}}, "'qkv' cannot be divided along 'head': 4 devices do not divide the 2"),
        (("data",), {"changed": {DOWN: "width"}}, "'down' is divided by width, replicated; the job allows only data"),
        (("data", "tensor"), {"changed": {DOWN: PARTIAL_SUMS}}, "along axis 0: 'activated' is none"),
    ],
)
def test_what_job_or_operators_do_not_allow_is_named(kinds, changes, fault):
    legal = problem(*kinds)
    shown = plan(**changes)
    found = "; ".join(faults(CostModel(legal), shown))
    assert fault in found


def test_memory_of_a_sharded_stage_has_its_parts():
    """FSDP over 4 devices: each holds a quarter of 2 + 2 + 12 bytes per parameter."""
    costs = CostModel(problem("fsdp"))
    for storage, parts in (("replicated", (1, 1, 1)), ("optimizer", (1, 1, 4)), ("weights", (4, 4, 4))):
        shown = plan(storage=storage)
        found = costs.plan(shown)
        (own,) = memory_parts(costs, shown, found)
        expected = [size * LLAMA.num_params / part for size, part in zip((2, 2, 12), parts, strict=True)]
        assert (own.weights_bytes, own.gradients_bytes, own.optimizer_bytes) == pytest.approx(expected)
        assert own.total_bytes == pytest.approx(float(found.memory_bytes[0]))


def test_recomputation_of_a_sharded_stage_is_judged_like_any_other():
    (stage,) = plan().stages
    again = replace(plan(), pipelines=(Pipeline(stages=(replace(stage, recompute=True),)),))
    assert faults(CostModel(problem("data")), again) == ("stage 0: recomputes although it fits in memory without",)
