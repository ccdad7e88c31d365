"""The convex case: average regret of linear least squares whose steps shrink as 1 / sqrt(t)."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import torch

from benchmarks.convergence import clocks, tasks
from benchmarks.convergence.tasks import Task, squared_error
from benchmarks.convergence.training import Recipe, replayed, scaled, sgd
from benchmarks.harness.measuring import Tree
from stagecut.executor.waves.setting.data import WaveData, sharded
from stagecut.planner.core.job import WaveChoices
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.timeline import WaveTimeline, simulate_waves

WORK = clocks.Work(model="resnet152", optimizer="sgd", minibatch=16, num_layers=1)
SCALE = Fraction(1, 4)
DEVICES = ("titan-v/0", "titan-rtx/0", "rtx-2060/0", "quadro-p4000/0")
RATES = (0.01, 0.02, 0.04)
"""Lengths of a worker's first step."""
MINIBATCHES = 4096
"""Of all workers."""
SETTINGS = tuple((in_flight, distance) for in_flight in (1, 4) for distance in (0, 4, 32))


def measure(in_flight: int, distance: int, *, minibatches: int = MINIBATCHES) -> Tree:
    """Average regret after 2, 4, 8 ... minibatches, with the best length of the first step."""
    torch.set_num_threads(1)
    choices = WaveChoices(clock_distance=distance)
    model = WaveCostModel(WORK.problem(global_batch=WORK.minibatch, waves=choices))
    plan = plan_of(in_flight, distance)
    num_waves = max(2, minibatches // (len(DEVICES) * in_flight))
    timeline = simulate_waves(model.plan(plan), num_waves=num_waves)
    return min((of_rate(rate, timeline) for rate in RATES), key=lambda tree: tree["regrets"][-1])


def of_rate(rate: float, timeline: WaveTimeline) -> Tree:
    """Average regret over minibatches in the order in which they began.

    The regret of a minibatch is its loss with the weights that it saw, less its loss with the best weights for the
    whole data set.
    """
    plan = scaled(timeline.costs.plan, SCALE)
    recipe = Recipe(task=tasks.regression(), optimizer=sgd(rate), scale=SCALE, num_samples=0)
    team, _ = replayed(timeline, plan, recipe, scheduler=shrinking)
    data = sharded(recipe.task.training, plan)
    reports = team.train(data, num_waves=timeline.num_waves)
    losses = {report.worker: report.losses for report in reports}
    best = best_weights(recipe.task)
    regrets = [losses[worker][p - 1] - loss_of(best, data, worker, p) for worker, p in order_of(timeline)]
    averages: Floats = np.cumsum(regrets) / np.arange(1, len(regrets) + 1)
    counts = [2**power for power in range(1, len(regrets).bit_length())]
    return {
        "rate": rate,
        "counts": counts,
        "regrets": [float(f"{averages[count - 1]:.6g}") for count in counts],
        "local_staleness": [max(r.local_staleness for r in reports), reports[0].local_bound],
        "global_staleness": [max(r.global_staleness for r in reports), reports[0].global_bound],
    }


def plan_of(in_flight: int, distance: int) -> WavePlan:
    """A worker on each kind of device, with its minibatches in flight; one server holds the weights."""
    whole = Stage(
        start=0,
        stop=1,
        devices=DEVICES[:1],
        warmup_depth=1,
        forward_micro_batch=WORK.minibatch,
        backward_micro_batch=WORK.minibatch,
    )
    workers = (
        VirtualWorker(
            stages=(replace(whole, devices=(device,)),), minibatch=WORK.minibatch, in_flight=in_flight, wave=in_flight
        )
        for device in DEVICES
    )
    return WavePlan(workers=tuple(workers), clock_distance=distance, owners=("titan-v",))


shrinking = partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda step: (step + 1) ** -0.5)
"""Step t has the length of the first over sqrt(t)."""


def order_of(timeline: WaveTimeline) -> list[tuple[int, int]]:
    """Workers and minibatches in the order of their forwards."""
    forwards = [span for span in timeline.spans if span.kind is WaveKind.FORWARD]
    return [(span.worker, span.number) for span in sorted(forwards, key=lambda span: (span.start_s, span.worker))]


def best_weights(task: Task) -> torch.Tensor:
    """Least squares."""
    inputs, targets = task.training
    return torch.linalg.lstsq(inputs.double(), targets.double(), driver="gelsd").solution


def loss_of(weights: torch.Tensor, data: WaveData, worker: int, minibatch: int) -> float:
    """Loss of a minibatch with some weights."""
    inputs, targets = data(worker, minibatch)
    assert isinstance(inputs, torch.Tensor)
    assert isinstance(targets, torch.Tensor)
    return float(squared_error(inputs.double() @ weights, targets.double()))
