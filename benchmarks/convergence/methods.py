"""What is compared, and the trainings of each."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import torch

from benchmarks.convergence import clocks, tasks, training
from benchmarks.convergence.clocks import Clocked, Work
from benchmarks.convergence.tasks import Task
from benchmarks.convergence.training import Curve, Recipe
from benchmarks.harness.measuring import Tree
from stagecut.executor.play.optimizers import OptimizerFactory
from stagecut.planner.core.job import AUTO, Number, WaveChoices
from stagecut.planner.core.waves import Allocation, LocalStep

SEEDS = (0, 1)
DATA_PARALLEL = "data parallelism"
DISTANCES = (0, 4, 32)
Maker = Callable[[], Clocked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One task, the model that gives its times, and what a training of it is judged by."""

    title: str
    task: Callable[[], Task]
    work: Work
    scale: Fraction
    optimizer: Callable[[float], OptimizerFactory]
    rates: tuple[float, ...]
    """Learning rates tried with one step a wave."""
    wave_rates: tuple[float, ...]
    """Those tried for workers that each make a step a minibatch, and add them up."""
    target: float
    rising: bool
    unit: str
    num_samples: int
    seeds: tuple[int, ...] = SEEDS

    def recipe(self, rate: float, seed: int) -> Recipe:
        """One training."""
        return Recipe(
            task=self.task(),
            optimizer=self.optimizer(rate),
            scale=self.scale,
            num_samples=self.num_samples,
            seed=seed,
        )


DIGITS = Comparison(
    title="digits",
    task=tasks.digits,
    work=Work(model="resnet152", optimizer="sgd", minibatch=32),
    scale=Fraction(1, 4),
    optimizer=training.sgd,
    rates=(0.05, 0.1, 0.2),
    wave_rates=(0.003, 0.006, 0.0125, 0.025),
    target=92.0,
    rising=True,
    unit="accuracy, %",
    num_samples=6000,
)
TEXT = Comparison(
    title="text",
    task=tasks.text,
    work=Work(model="gpt2-345m", optimizer="adamw", minibatch=2),
    scale=Fraction(2),
    optimizer=training.adam,
    rates=(1e-3, 2e-3),
    wave_rates=(6e-5, 1.2e-4, 2.5e-4),
    target=2.7,
    rising=False,
    unit="loss, nats per byte",
    num_samples=2400,
    seeds=(0,),
)


def methods(work: Work) -> Mapping[str, Maker]:
    """Ways to train, by name."""
    flush = WaveChoices(allocation=Allocation.HYBRID, local_step=LocalStep.WAVE)
    return {
        DATA_PARALLEL: partial(clocks.data_parallel, work),
        "alike pipelines": partial(clocks.alike_pipelines, work, global_batch=8 * work.minibatch),
        "unlike pipelines": partial(clocks.virtual_workers, work, flush),
        **{f"waves, D = {distance}": partial(_waves, work, distance) for distance in DISTANCES},
    }


def sweep(work: Work) -> Mapping[str, Maker]:
    """Further ways: fewer devices, a smaller batch, other N_m, and workers of one kind of device each."""
    node = Allocation.NODE_PARTITION
    proportional = WaveChoices(allocation=node, proportional=True)
    return {
        "data parallelism, fastest devices": partial(clocks.data_parallel, work, fastest=True),
        "alike pipelines, half the batch": partial(clocks.alike_pipelines, work, global_batch=4 * work.minibatch),
        **{
            f"waves, D = {distance}, N_m = {in_flight}": partial(_waves, work, distance, in_flight)
            for in_flight in (1, 3)
            for distance in DISTANCES[:2]
        },
        "waves, one kind each, D = 0": partial(_waves, work, 0, allocation=node),
        "waves in proportion, one kind each, D = 0": partial(clocks.virtual_workers, work, proportional),
    }


def _waves(
    work: Work, distance: int, in_flight: Number = AUTO, *, allocation: Allocation = Allocation.HYBRID
) -> Clocked:
    choices = WaveChoices(allocation=allocation, clock_distance=distance, in_flight=in_flight)
    return clocks.virtual_workers(work, choices)


def measure(comparison: Comparison, maker: Maker) -> Tree:
    """The best learning rate for the first seed, and all seeds with it."""
    torch.set_num_threads(1)
    clocked = maker()
    by_wave = clocked.plan.local_step is LocalStep.WAVE
    rates = comparison.rates if by_wave else comparison.wave_rates
    first = comparison.seeds[0]
    tried = {rate: training.train(clocked, comparison.recipe(rate, first)) for rate in rates}
    rate = min(rates, key=lambda rate: _rank(comparison, tried[rate]))
    curves = [tried[rate], *(training.train(clocked, comparison.recipe(rate, seed)) for seed in comparison.seeds[1:])]
    reached = [_times(comparison, curve) for curve in curves]
    return {
        "about": clocked.about,
        "samples_per_s": clocked.samples_per_s,
        "rate": rate,
        "tried": {str(rate): _times(comparison, curve)[0] for rate, curve in tried.items()},
        "seconds": [seconds for seconds, _ in reached],
        "samples": [samples for _, samples in reached],
        "local_staleness": _both([curve.local_staleness for curve in (*tried.values(), *curves)]),
        "global_staleness": _both([curve.global_staleness for curve in (*tried.values(), *curves)]),
        "curve": _rounded(curves[0]),
    }


def mean(values: Sequence[float | None]) -> float | None:
    """The mean; None if one is missing."""
    found = [value for value in values if value is not None]
    return statistics.fmean(found) if found and len(found) == len(values) else None


def _times(comparison: Comparison, curve: Curve) -> tuple[float | None, float | None]:
    """Seconds and samples to the target."""
    of = partial(training.time_to, values=curve.values, target=comparison.target, rising=comparison.rising)
    return of(curve.times_s), of(curve.samples)


def _rank(comparison: Comparison, curve: Curve) -> tuple[bool, float]:
    """Seconds to the target, or else the last value."""
    seconds, _ = _times(comparison, curve)
    last = -curve.values[-1] if comparison.rising else curve.values[-1]
    return (seconds is None, last if seconds is None else seconds)


def _both(pairs: Sequence[tuple[int, int]]) -> list[int]:
    return [max(seen for seen, _ in pairs), max(bound for _, bound in pairs)]


def _rounded(curve: Curve) -> dict[str, Any]:
    return {
        "seconds": [float(f"{value:.4g}") for value in curve.times_s],
        "values": [float(f"{value:.4g}") for value in curve.values],
    }
