"""What fills the memory of the devices of a plan."""

from dataclasses import astuple, replace

import pytest

from stagecut.models import build_model
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, Optimizer
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.memory_parts import memory_parts

LLAMA = build_model("llama-mini", precision=Precision.FP16)
"""Embedding, four blocks of attention and feed-forward, head: layers 0 to 9."""


def problem(*, zero1=False):
    kind = DeviceType(name="gpu", peak_flops_per_s=((Precision.FP16, 1e12),), memory_bytes=1e12)
    cluster = Cluster(
        name="four",
        device_types=(kind,),
        servers=(Server(name="node", islands=(Island(device_type="gpu", count=4),)),),
    )
    job = Job(
        global_batch=16,
        optimizer=Optimizer(name="mixed", weight_bytes=2.0, gradient_bytes=4.0, state_bytes=12.0),
        micro_batches=(4,),
        zero1=zero1,
        schedules=tuple(Schedule),
    )
    return Problem(model=LLAMA, cluster=cluster, job=job)


def plan(*cuts, schedule=Schedule.ONE_F_ONE_B, chunks=1, recompute=False):
    """Two replicas of every stage; stages take turns on the device groups."""
    num_stages = len(cuts) - 1
    depths, groups = warmup_depths(schedule, num_stages, 4, chunks=chunks), num_stages // chunks
    stages = tuple(
        Stage(
            start=cuts[index],
            stop=cuts[index + 1],
            devices=tuple(f"node/{2 * (index % groups) + slot}" for slot in range(2)),
            replicas=2,
            recompute=recompute,
            warmup_depth=depths[index],
            forward_micro_batch=4,
            backward_micro_batch=4,
        )
        for index in range(num_stages)
    )
    return Plan(
        schedule=schedule, micro_batch=4, num_microbatches=4, pipelines=(Pipeline(stages=stages),), chunks=chunks
    )


@pytest.mark.parametrize("zero1", [False, True])
@pytest.mark.parametrize(
    "shown",
    [
        plan(0, 5, 10),
        plan(0, 5, 10, recompute=True),
        plan(0, 2, 5, 8, 10, schedule=Schedule.INTERLEAVED, chunks=2),
    ],
)
def test_the_parts_add_up_to_the_memory_of_every_stage(shown, zero1):
    costs = CostModel(problem(zero1=zero1))
    found = costs.plan(shown)
    parts = memory_parts(costs, shown, found)
    assert [own.total_bytes for own in parts] == pytest.approx(found.memory_bytes.tolist())
    assert min(min(astuple(own)) for own in parts) >= 0


def test_weights_gradients_and_state_follow_the_optimizer():
    """With ZeRO-1 two replicas hold half of the state each: 2, 4 and 12 / 2 bytes per parameter."""
    for zero1, state in ((False, 12.0), (True, 6.0)):
        costs, shown = CostModel(problem(zero1=zero1)), plan(0, 10)
        (parts,) = memory_parts(costs, shown, costs.plan(shown))
        assert parts.weights_bytes == pytest.approx(2.0 * LLAMA.num_params)
        assert parts.gradients_bytes == pytest.approx(4.0 * LLAMA.num_params)
        assert parts.optimizer_bytes == pytest.approx(state * LLAMA.num_params)


def test_nothing_is_held_for_an_optimizer_of_no_bytes():
    empty = Optimizer(name="none", weight_bytes=0.0, gradient_bytes=0.0, state_bytes=0.0)
    costs, shown = CostModel(replace(problem(), job=replace(problem().job, optimizer=empty))), plan(0, 10)
    (parts,) = memory_parts(costs, shown, costs.plan(shown))
    assert (parts.weights_bytes, parts.gradients_bytes, parts.optimizer_bytes) == (0.0, 0.0, 0.0)
