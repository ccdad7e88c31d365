"""Pipelines on one device: simulated and measured times.

On *green contexts* every stage has multiprocessors of its own, and is a device as the simulator knows it. All stages
are timed at once, each on its own part, and the simulator plays their times with transfers that take nothing.

*Equal streams* share all multiprocessors. Some stage always has work, so the device is always busy, if it loses
nothing by switching: an iteration takes as long as all the work would take alone, one piece after another.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import TypeVar

import torch

from benchmarks.gpu.green_contexts import GreenContextsUnavailableError, green_contexts
from benchmarks.gpu.layers import Effort, Profiled, Subject, free_memory
from stagecut.executor import Team
from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.executor.execution_plan import Training
from stagecut.executor.machine.run_queue import RunQueue
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.measure.kernels import matmul_timings, update_timings
from stagecut.executor.measure.profile_model import SizeTimes, size_times
from stagecut.executor.measure.samples import Samples, draw_samples
from stagecut.executor.measure.stage_times import StageTimes, arriving
from stagecut.executor.measure.timings import Summary, summarize
from stagecut.executor.measure.workers import Worker
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.run_record import MAX_RUN_QUEUE_SHARE
from stagecut.planner.cost.layer_times import interpolate
from stagecut.planner.simulator.action_lists import plan_actions

MICRO_BATCHES_PER_STAGE = 4
MATRIX_SIDE = {"cpu": 512, "cuda": 8192}
T = TypeVar("T")


class Sharing(StrEnum):
    """How the stages share the device."""

    GREEN_CONTEXTS = "green contexts"
    EQUAL_STREAMS = "equal streams"
    THREADS = "threads"
    """On a CPU, where each stage has cores of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Where the stages of a pipeline run."""

    sharing: Sharing
    streams: tuple[torch.cuda.Stream, ...] | None
    """One per stage; None on a CPU."""
    num_multiprocessors: int | None
    """Multiprocessors that a stage may use; None on a CPU."""

    def on(self, stage: int) -> AbstractContextManager[object]:
        """A context in which work goes to where the stage runs."""
        return nullcontext() if self.streams is None else torch.cuda.stream(self.streams[stage])


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """Seconds of one stage at the pipeline's micro-batch size."""

    forward_s: float
    backward_s: float
    update_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """One pipeline, predicted and measured."""

    sharing: Sharing
    num_multiprocessors: int | None
    slowdown: float
    """Time of a matrix product on a stage's part of the device, over its time on the whole device."""
    cuts: tuple[int, ...]
    micro_batch: int
    num_microbatches: int
    stages: tuple[StageFigures, ...]
    """The figures from which the time is predicted."""
    predicted_s: float
    measured_s: float
    steps_s: tuple[float, ...]
    contaminated: bool

    @property
    def error(self) -> float:
        """Error of the measured time, relative to the prediction."""
        return self.measured_s / self.predicted_s - 1


def lanes_on(device: torch.device, num_stages: int) -> tuple[list[Lanes], str | None]:
    """Every way to share the device, and the reason if green contexts are not among them."""
    if device.type == "cpu":
        own, shared = (
            Lanes(sharing=sharing, streams=None, num_multiprocessors=None)
            for sharing in (Sharing.THREADS, Sharing.EQUAL_STREAMS)
        )
        return [own, shared], None
    equal = Lanes(
        sharing=Sharing.EQUAL_STREAMS,
        streams=tuple(torch.cuda.Stream(device) for _ in range(num_stages)),
        num_multiprocessors=torch.cuda.get_device_properties(device).multi_processor_count,
    )
    try:
        found = green_contexts(torch.cuda.current_device(), num_stages)
    except GreenContextsUnavailableError as fault:
        return [equal], str(fault)
    green = Lanes(sharing=Sharing.GREEN_CONTEXTS, streams=found.streams, num_multiprocessors=found.num_multiprocessors)
    return [green, equal], None


def run_pipeline(
    subject: Subject, profiled: Profiled, lanes: Lanes, *, num_stages: int, micro_batch: int, effort: Effort
) -> PipelineRun:
    """Predict and measure a pipeline of stages that take about equally long."""
    cuts = equal_cuts(profiled.profile, num_stages, micro_batch)
    plan = plan_of(cuts, micro_batch=micro_batch, num_microbatches=MICRO_BATCHES_PER_STAGE * num_stages)
    if lanes.sharing is Sharing.EQUAL_STREAMS:
        stages, disturbed = stages_of(profiled, cuts, micro_batch), profiled.contaminated
        predicted_s = shared_s(stages, plan.num_microbatches)
    else:
        stages, disturbed = stages_together(subject, lanes, cuts, micro_batch=micro_batch, effort=effort)
        predicted_s = simulated_s(stages, plan)
    free_memory()
    steps_s, runs_disturbed = _played(subject, plan, lanes, effort)
    free_memory()
    return PipelineRun(
        sharing=lanes.sharing,
        num_multiprocessors=lanes.num_multiprocessors,
        slowdown=_slowdown(subject.device, lanes),
        cuts=cuts,
        micro_batch=micro_batch,
        num_microbatches=plan.num_microbatches,
        stages=stages,
        predicted_s=predicted_s,
        measured_s=median(steps_s),
        steps_s=steps_s,
        contaminated=disturbed or runs_disturbed,
    )


def simulated_s(stages: Sequence[StageFigures], plan: Plan) -> float:
    """Iteration time of stages on devices of their own, with instant messages."""
    times = PlannedTimes(
        micro_batch=plan.micro_batch,
        forward_s=tuple(stage.forward_s for stage in stages),
        backward_s=tuple(stage.backward_s for stage in stages),
        transfer_s=(0.0,) * (len(stages) - 1),
        sync_s=(0.0,) * len(stages),
        update_s=tuple(stage.update_s for stage in stages),
        routes=((),) * (3 * len(stages) - 2),
    )
    return times.iteration_s(plan_actions(plan))


def shared_s(stages: Sequence[StageFigures], num_microbatches: int) -> float:
    """Iteration time of stages that share a device without loss: the sum of their times alone."""
    return sum(num_microbatches * (stage.forward_s + stage.backward_s) + stage.update_s for stage in stages)


def equal_cuts(profile: ModelProfile, num_stages: int, micro_batch: int) -> tuple[int, ...]:
    """Boundaries that make the slowest stage as fast as possible, by dynamic programming over stages."""
    work_s = [sum(layer_s(profile, index, micro_batch)) for index in range(profile.num_layers)]
    best: list[tuple[float, tuple[int, ...]]] = [(sum(work_s[:stop]), (0, stop)) for stop in range(len(work_s) + 1)]
    for stage in range(1, num_stages):
        best = [
            min(
                ((max(best[cut][0], sum(work_s[cut:stop])), (*best[cut][1], stop)) for cut in range(stage, stop)),
                default=(float("inf"), (0,)),
            )
            for stop in range(len(work_s) + 1)
        ]
    return best[-1][1]


def layer_s(profile: ModelProfile, index: int, micro_batch: int) -> tuple[float, float]:
    """Forward and backward times of a layer, from its only time table."""
    (table,) = profile.layers[index].times
    forward_s, backward_s = (
        interpolate(table.samples, seconds, micro_batch) for seconds in (table.forward_s, table.backward_s)
    )
    return forward_s, backward_s


def stages_of(profiled: Profiled, cuts: Sequence[int], micro_batch: int) -> tuple[StageFigures, ...]:
    """Times of stages on the whole device, from the profile of their layers."""
    profile, found = profiled.profile, []
    for start, stop in pairwise(cuts):
        times = [layer_s(profile, index, micro_batch) for index in range(start, stop)]
        layers = profile.layers[start:stop]
        held = sum(layer.params_bytes + layer.shared_params_bytes for layer in layers) / profile.precision.num_bytes
        found.append(
            StageFigures(
                forward_s=sum(forward_s for forward_s, _ in times),
                backward_s=sum(backward_s for _, backward_s in times),
                update_s=profiled.update_s * held,
            )
        )
    return tuple(found)


def stages_together(
    subject: Subject, lanes: Lanes, cuts: Sequence[int], *, micro_batch: int, effort: Effort
) -> tuple[tuple[StageFigures, ...], bool]:
    """Times of all stages at once, each on its part of the device, and whether other programs disturbed them."""
    samples = draw_samples(subject.chain, micro_batch, shape=None, device=subject.device)
    _wait_for(subject.device)
    timed = []
    for index, span in enumerate(pairwise(cuts)):
        with lanes.on(index):
            here = arriving(subject.chain, samples, layer=span[0], autocast=subject.autocast)
            timed.append((StageTimes(subject.chain, subject.timing(span, effort), device=subject.device), here))
    _wait_for(subject.device)
    found = _at_once(len(timed), lambda worker: _timed(subject, lanes, worker, *timed[worker.rank], effort=effort))
    return tuple(figures for figures, _ in found), any(disturbed for _, disturbed in found)


def _timed(
    subject: Subject, lanes: Lanes, worker: Worker, stage: StageTimes, here: Samples, *, effort: Effort
) -> tuple[StageFigures, bool]:
    """Time one stage among the others."""
    with lanes.on(worker.rank):
        times: SizeTimes = size_times(here.size, [stage.timings(here, worker, piece=1)])
        parameters = [parameter for module in stage.modules for parameter in module.parameters()]
        worker.meet()
        update: Summary = summarize(update_timings(parameters, subject.device, repetitions=effort.repetitions))
    figures = StageFigures(
        forward_s=times.whole_s(is_forward=True),
        backward_s=times.whole_s(is_forward=False),
        update_s=update.total_s,
    )
    return figures, times.contaminated or update.contaminated


def _at_once(size: int, work: Callable[[Worker], T]) -> list[T]:
    """Run threads that wait for each other; if one fails, the others stop."""
    barrier, finished, over = threading.Barrier(size), _Counter(), _Counter()

    def one(rank: int) -> T:
        try:
            return work(Worker(rank=rank, size=size, barrier=barrier, finished=finished, over=over))
        except BaseException:
            finished.value = size
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
    faults = [fault for future in futures if (fault := future.exception())]
    for fault in sorted(faults, key=lambda fault: isinstance(fault, threading.BrokenBarrierError)):
        raise fault
    return [future.result() for future in futures]


class _Counter:
    """A counter shared by threads, of work done."""

    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    def get_lock(self) -> threading.Lock:
        """Must be held while the value changes."""
        return self._lock


def _played(subject: Subject, plan: Plan, lanes: Lanes, effort: Effort) -> tuple[tuple[float, ...], bool]:
    """Seconds of the clean steps, or of all steps if none is clean; and whether none is."""
    team = Team(plan, subject.chain, Training(autocast=subject.autocast), device=subject.device, streams=lanes.streams)
    samples = draw_samples(subject.chain, plan.micro_batch * plan.num_microbatches, shape=None, device=subject.device)
    _wait_for(subject.device)
    steps = list(_steps(team, samples, count=effort.warmup + effort.repetitions))[effort.warmup :]
    clean = tuple(seconds for seconds, share in steps if share <= MAX_RUN_QUEUE_SHARE)
    return clean or tuple(seconds for seconds, _ in steps), not clean


def _steps(team: Team, samples: Samples, *, count: int) -> Iterator[tuple[float, float]]:
    """Seconds and run-queue share of each step."""
    queue = RunQueue()
    for _ in range(count):
        mark = queue.mark()
        team.step((samples.state, samples.targets))
        share = queue.share_since(mark)
        traces = [pipeline.last_step for pipeline in team.pipelines if pipeline.last_step]
        yield max(trace.end_s for trace in traces) - min(trace.start_s for trace in traces), share


def _slowdown(device: torch.device, lanes: Lanes) -> float:
    """Seconds of a matrix product on a stage's part of the device, which shows what dividing it costs."""

    def product_s() -> float:
        readings = matmul_timings(device, Precision.BF16, side=MATRIX_SIDE[device.type], repetitions=3)
        return summarize(readings).total_s

    with lanes.on(0):
        part_s = product_s()
    _wait_for(device)
    return part_s / product_s()


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
