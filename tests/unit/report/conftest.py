"""One hand-made plan, small enough to follow on paper.

Layers of F = 1 s and B = 2 s; stage 0 has one of them, stage 1 has two; one transfer takes 0.5 s;
two micro-batches of 2 samples under 1F1B:

    stage 0: F0 0-1, F1 1-2, B0 8-10, B1 14-16
    stage 1: F0 1.5-3.5, B0 3.5-7.5, F1 7.5-9.5, B1 9.5-13.5
    links:   activations 1-1.5 and 2-2.5, gradients 7.5-8 and 13.5-14

The iteration takes 16 s, of which the stages compute 6 s and 12 s: bubbles 1 - 18 / 32 = 43.75 %.
"""

import pytest

from stagecut.planner.analysis.prediction import Played
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.simulator.timeline import simulate


def _layer(name):
    times = TimeTable(device_type="gpu", samples=(2,), forward_s=(1.0,), backward_s=(2.0,))
    return Layer(name=name, saved_bytes=1e9, times=(times,))


def _stage(*, start, stop, device, depth):
    return Stage(
        start=start, stop=stop, devices=(device,), warmup_depth=depth, forward_micro_batch=2, backward_micro_batch=2
    )


@pytest.fixture
def problem():
    return Problem(
        model=ModelProfile(name="three", layers=tuple(_layer(name) for name in ("embedding", "block", "head"))),
        cluster=Cluster(
            name="pair",
            device_types=(DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=8e9),),
            servers=(Server(name="a", islands=(Island(device_type="gpu", count=1),), count=2),),
            network=Link(bandwidth_bytes_per_s=float("inf"), latency_s=0.5),
        ),
        job=Job(global_batch=4, optimizer=standard_optimizer("adamw", Precision.FP16), micro_batches=(2,)),
    )


@pytest.fixture
def plan():
    stages = (_stage(start=0, stop=1, device="a-0/0", depth=2), _stage(start=1, stop=3, device="a-1/0", depth=1))
    return Plan(schedule=Schedule.ONE_F_ONE_B, micro_batch=2, num_microbatches=2, pipelines=(Pipeline(stages=stages),))


@pytest.fixture
def costs(problem, plan):
    return CostModel(problem).plan(plan)


@pytest.fixture
def timeline(costs):
    timeline = simulate(costs)
    assert timeline.iteration_s == 16.0
    return timeline


@pytest.fixture
def played(problem, plan, costs, timeline):
    return Played(problem=problem, plan=plan, costs=costs, timeline=timeline)
