"""Memory that a step is measured to take, beside what the cost model predicts of the same plan."""

from functools import partial

import pytest
import torch
from torch import nn

from stagecut import executor
from stagecut.executor import Team
from stagecut.executor.execution_plan import Training
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.run.step_memory import step_peak_bytes
from stagecut.models import build_model, build_modules
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.io.files.plan_file import PlanFile, provenance_of
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, StagePrediction
from tests.executor import pool

ADAMW = partial(torch.optim.AdamW, lr=1e-3)
TOKENS = 64
TOLERANCE = 0.1
"""Share of the prediction: short-lived tensors are estimated there, and update and gradient sums add to it."""


def problem_of(model: str, plan: Plan, *, zero1: bool = False) -> Problem:
    """A model of the catalogue on the devices of a plan."""
    kind = DeviceType(
        name="core",
        peak_flops_per_s=((Precision.FP32, 1e12),),
        memory_bytes=float("inf"),
        memory_bandwidth_bytes_per_s=1e11,
    )
    link = Link(bandwidth_bytes_per_s=1e10)
    groups = [stage.devices for pipeline in plan.pipelines for stage in pipeline.stages]
    servers = tuple(
        Server(
            name=devices[0].rpartition("/")[0],
            islands=(Island(device_type="core", count=len(devices), fabric=link),),
            nic=link,
        )
        for devices in groups
    )
    sequence_length = None if model.startswith(("vgg", "resnet")) else TOKENS
    return Problem(
        model=build_model(model, precision=Precision.FP32, sequence_length=sequence_length),
        cluster=Cluster(name="ranks", device_types=(kind,), servers=servers, network=link),
        job=Job(
            global_batch=len(plan.pipelines) * plan.num_microbatches * plan.micro_batch,
            optimizer=standard_optimizer("adamw", Precision.FP32),
            precision=Precision.FP32,
            zero1=zero1,
        ),
    )


def predicted_bytes(problem: Problem, plan: Plan) -> list[float]:
    """Predicted bytes, by stage."""
    return [float(each) for each in CostModel(problem).plan(plan).memory_bytes]


def measured_bytes(pipeline: Pipeline, chain, *, shares_device: bool = False) -> float:
    """After a first step, in which the optimizer makes its states."""
    batch = chain.batch(pipeline.global_batch, torch.Generator().manual_seed(0))
    pipeline.step(batch)
    return step_peak_bytes(pipeline, batch, shares_device=shares_device)


PLANS = {
    "two stages": ("gpt-mini", plan_of((0, 7, 14), micro_batch=8, num_microbatches=3)),
    "recomputed": ("gpt-mini", plan_of((0, 7, 14), micro_batch=8, num_microbatches=3, recompute=(True, True))),
    "replicas": ("gpt-mini", plan_of((0, 7, 14), micro_batch=8, num_microbatches=3, replicas=(1, 2))),
    "images": ("vgg16-cifar", plan_of((0, 5, 14), micro_batch=8, num_microbatches=2)),
}


@pytest.mark.parametrize("name", PLANS)
def test_measured_memory_is_what_was_predicted(name: str) -> None:
    """Weights, gradients, states, and what forwards keep, whatever else the process holds."""
    model, plan = PLANS[name]
    predicted = predicted_bytes(problem_of(model, plan), plan)
    chain = build_modules(model, sequence_length=None if model.startswith("vgg") else TOKENS, dropout=0.0)
    elsewhere = torch.ones(10_000_000)
    team = Team(plan, chain, Training(optimizer=ADAMW), device=torch.device("cpu"))
    found = team.each(lambda pipeline: measured_bytes(pipeline, chain))
    assert elsewhere.sum() == 1e7
    print(name, predicted, found)
    for pipeline, peak_bytes in zip(team.pipelines, found, strict=True):
        assert peak_bytes == pytest.approx(predicted[pipeline.role.group], rel=TOLERANCE), pipeline.role


def file_of(problem: Problem, plan: Plan) -> PlanFile:
    """A plan file that predicts nothing."""
    nothing = StagePrediction(
        forward_s=0, backward_s=0, transfer_s=0, sync_s=0, update_s=0, memory_bytes=0, limit_bytes=0
    )
    return PlanFile(
        problem=problem,
        plan=plan,
        predicted=Prediction(iteration_s=0.0, stages=(nothing,) * len(plan.stages)),
        certificate=Certificate(status=Status.FEASIBLE, solver="by hand", objective_s=0.0),
        provenance=provenance_of(problem, {}, seed=0),
    )


def measured(files: list[PlanFile]) -> list[tuple[int, float]]:
    """Measure every plan on one rank; return its device group and the bytes."""
    chain = build_modules("gpt-mini", sequence_length=TOKENS, dropout=0.0)
    pipelines = (executor.load(file, chain, optimizer=ADAMW) for file in files)
    shares = pool.DEVICE != "cpu"
    return [(pipeline.role.group, measured_bytes(pipeline, chain, shares_device=shares)) for pipeline in pipelines]


def test_divided_weights_and_divided_states_are_measured_near_what_was_predicted() -> None:
    """Two devices share a stage by tensor parallelism, or two copies of it divide the optimizer's states (ZeRO-1).

    What enters and leaves a shared layer is whole on each device, where the cost model divides all that it saves: more
    than predicted. Of copies the prediction is on the safe side.
    """
    shared = plan_of((0, 14), micro_batch=8, num_microbatches=2, tensor_parallel=(2,))
    copied = plan_of((0, 14), micro_batch=8, num_microbatches=2, replicas=(2,))
    cases = [(problem_of("gpt-mini", plan, zero1=zero1), plan) for plan, zero1 in ((shared, False), (copied, True))]
    answers = pool.run(measured, [file_of(*case) for case in cases], world_size=2)
    predicted = [predicted_bytes(problem, plan)[0] for problem, plan in cases]
    for (_, of_shared), (_, of_copied) in answers:
        assert predicted[0] <= of_shared <= 1.35 * predicted[0]
        assert 0.85 * predicted[1] <= of_copied <= 1.1 * predicted[1]


def test_bytes_of_a_single_layer_are_counted_exactly() -> None:
    """One product of 100 x 100 numbers of 8 bytes: weight, gradient and two states of AdamW, 80,000 bytes each.

    The update has two more such tensors for a moment: the root of the second state, and that divided by the correction
    of its bias. There is the count of steps, 4 bytes, and the loss, 8 bytes.
    """
    layer = nn.Linear(100, 100, bias=False).double()
    pipeline = executor.load(
        plan_of((0, 1), micro_batch=4, num_microbatches=1), [layer], nn.functional.mse_loss, torch.optim.AdamW
    )
    batch = torch.rand(4, 100, dtype=torch.float64), torch.rand(4, 100, dtype=torch.float64)
    pipeline.step(batch)
    assert step_peak_bytes(pipeline, batch) == 4 * 80_000 + 2 * 80_000 + 4 + 8


def test_looking_changes_nothing_but_by_a_step() -> None:
    """The losses after it are those of a training with one step more."""

    def losses(looks: bool) -> list[float]:
        torch.manual_seed(0)
        layers = [nn.Linear(3, 3), nn.Tanh()]
        pipeline = executor.load(plan_of((0, 2)), layers, nn.functional.mse_loss, partial(torch.optim.SGD, lr=0.1))
        batch = torch.ones(pipeline.global_batch, 3), torch.zeros(pipeline.global_batch, 3)
        first = pipeline.step(batch)
        step_peak_bytes(pipeline, batch) if looks else pipeline.step(batch)
        return [first, pipeline.step(batch)]

    assert losses(looks=True) == losses(looks=False)
