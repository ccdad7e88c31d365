"""One training: the curve of a plan over simulated time, and the staleness that its minibatches saw."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import torch
from torch import Tensor

from benchmarks.convergence.clocks import Clocked
from benchmarks.convergence.replay import Replay
from benchmarks.convergence.tasks import Task
from stagecut.executor.play.optimizers import OptimizerFactory
from stagecut.executor.waves.evaluation import outputs_of, whole_model
from stagecut.executor.waves.setting.data import sharded
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.simulator.waves.timeline import WaveTimeline, simulate_waves

NUM_POINTS = 40
"""Evaluations of a training."""
Weights = Mapping[str, Tensor]
SchedulerFactory = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to train."""

    task: Task
    optimizer: OptimizerFactory
    scale: Fraction
    """Samples that are trained for each sample of the model that gives the times."""
    num_samples: int
    """Trained in all, at most."""
    seed: int = 0
    """Of weights and order of samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What a training came to."""

    times_s: tuple[float, ...]
    """Simulated."""
    samples: tuple[int, ...]
    values: tuple[float, ...]
    """Of the held-out samples, with the global weights of that time."""
    local_staleness: tuple[int, int]
    """Most of a worker's own updates that a minibatch lacked, and the bound."""
    global_staleness: tuple[int, int]
    """Most minibatches of another worker that one lacked, and the bound."""


def train(clocked: Clocked, recipe: Recipe) -> Curve:
    """Train through a plan, on the simulated clock."""
    plan = scaled(clocked.plan, recipe.scale)
    num_waves = max(1, recipe.num_samples // plan.samples_per_wave)
    waves = sorted({round(1 + index * (num_waves - 1) / NUM_POINTS) for index in range(NUM_POINTS + 1)})
    steps_by_wave = plan.local_step is LocalStep.WAVE
    played = _in_calls if steps_by_wave else _in_one_call
    found, reports = played(clocked, plan, recipe, waves)
    return Curve(
        times_s=tuple(time_s for time_s, _ in found),
        samples=tuple(wave * plan.samples_per_wave for wave in waves),
        values=tuple(value for _, value in found),
        local_staleness=_worst([(report.local_staleness, report.local_bound) for report in reports]),
        global_staleness=_worst([(report.global_staleness, report.global_bound) for report in reports]),
    )


def scaled(plan: WavePlan, scale: Fraction) -> WavePlan:
    """The same plan with other minibatches."""

    def worker(own: VirtualWorker) -> VirtualWorker:
        size = max(1, int(own.minibatch * scale))
        stages = tuple(replace(s, forward_micro_batch=size, backward_micro_batch=size) for s in own.stages)
        return replace(own, stages=stages, minibatch=size)

    return replace(plan, workers=tuple(map(worker, plan.workers)))


def _training(recipe: Recipe, scheduler: SchedulerFactory | None = None) -> WaveTraining:
    return WaveTraining(
        loss_fn=recipe.task.loss,
        optimizer=recipe.optimizer,
        scheduler=scheduler,
        seed=recipe.seed,
        check_finite=False,  # a rate that is too high diverges, and is not chosen
    )


def _value(team: WaveTeam, recipe: Recipe, weights: Weights) -> float:
    inputs, targets = recipe.task.held_out
    output = outputs_of(whole_model(team.execution, weights), inputs)
    assert isinstance(output, Tensor)
    return recipe.task.judge(output, targets)


Played = tuple[list[tuple[float, float]], list[WaveReport]]
"""Time and value after each of some numbers of waves, and what the ranks report."""


def _in_calls(clocked: Clocked, plan: WavePlan, recipe: Recipe, waves: Sequence[int]) -> Played:
    """With one step a wave and D = 0 every order of events gives the same weights: evaluate between calls."""
    assert plan.clock_distance == 0
    if clocked.costs is None:
        ends_s = [wave * clocked.plan.samples_per_wave / clocked.samples_per_s for wave in waves]
    else:
        timeline = simulate_waves(clocked.costs, num_waves=waves[-1])
        ends_s = [max(own[wave - 1] for own in timeline.wave_ends_s) for wave in waves]
    team = WaveTeam(plan, recipe.task.layers, _training(recipe))
    data = sharded(recipe.task.training, plan, seed=recipe.seed)
    values, reports = [], list[WaveReport]()
    for before, wave in itertools.pairwise((0, *waves)):
        reports += team.train(data, num_waves=wave - before)
        values.append(_value(team, recipe, team.global_weights()))
    return list(zip(ends_s, values, strict=True)), reports


def _in_one_call(clocked: Clocked, plan: WavePlan, recipe: Recipe, waves: Sequence[int]) -> Played:
    """The servers' weights are kept when a wave is complete; pipelines run on."""
    assert clocked.costs is not None
    timeline = simulate_waves(clocked.costs, num_waves=waves[-1])
    team, kept = replayed(timeline, plan, recipe, waves)
    reports = team.train(sharded(recipe.task.training, plan, seed=recipe.seed), num_waves=waves[-1])
    buffers = {name: value for name, value in team.global_weights().items() if name not in kept[waves[-1]].weights}
    found = [(kept[wave].time_s, _value(team, recipe, buffers | kept[wave].weights)) for wave in waves]
    return found, reports


@dataclass(slots=True)
class Snapshot:
    """The servers' weights after some waves, and when the last server had them."""

    weights: dict[str, Tensor]
    time_s: float = 0.0


def replayed(
    timeline: WaveTimeline,
    plan: WavePlan,
    recipe: Recipe,
    waves: Sequence[int] = (),
    *,
    scheduler: SchedulerFactory | None = None,
) -> tuple[WaveTeam, dict[int, Snapshot]]:
    """A team that trains in simulated order, and what its servers will have held after some numbers of waves."""
    kept, seen = {wave: Snapshot({}) for wave in waves}, dict.fromkeys(plan.owners, 0)

    def arrived(owner: str, time_s: float) -> None:
        shard, layout = team.shards[owner]
        if shard.clock > seen[owner]:
            seen[owner] = shard.clock
            if shard.clock in kept:
                kept[shard.clock].weights |= layout.split(shard.weights.clone())
                kept[shard.clock].time_s = max(kept[shard.clock].time_s, time_s)

    team = WaveTeam(plan, recipe.task.layers, _training(recipe, scheduler), channel=Replay(timeline, arrived).channel)
    return team, kept


def _worst(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Most seen, and the largest bound: of workers with waves of different length the one closest to its own."""
    seen, bound = max(pairs, key=lambda pair: (pair[0] - pair[1], pair[1]))
    return seen, bound


def time_to(curve_s: Sequence[float], values: Sequence[float], target: float, *, rising: bool) -> float | None:
    """When the mean of three successive values first reaches a target, between evaluations in proportion."""
    sign = 1.0 if rising else -1.0
    means = [sign * value for value in _running_means(values)]
    for index, mean in enumerate(means):
        if mean >= sign * target:
            if index == 0:
                return curve_s[0]
            before = means[index - 1]
            part = (sign * target - before) / (mean - before)
            return curve_s[index - 1] + part * (curve_s[index] - curve_s[index - 1])
    return None


def _running_means(values: Sequence[float]) -> Iterator[float]:
    for index in range(len(values)):
        last = values[max(0, index - 2) : index + 1]
        yield sum(last) / len(last)


def sgd(rate: float) -> OptimizerFactory:
    """Plain steps."""
    return partial(torch.optim.SGD, lr=rate)


def adam(rate: float) -> OptimizerFactory:
    """AdamW without decay."""
    return partial(torch.optim.AdamW, lr=rate, weight_decay=0.0)
