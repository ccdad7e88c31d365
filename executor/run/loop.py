"""The training steps of one rank of `plan run`, a process or a thread."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from stagecut.executor.dilated.dilation import Dilation
from stagecut.executor.dilated.time_scale import find_time_scale
from stagecut.executor.measure.contamination import RunQueue
from stagecut.executor.measure.memory_pass import memory_pass_s
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.trace import StepTrace
from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.outcome import Observer
from stagecut.executor.run.step_memory import step_peak_bytes
from stagecut.planner.core.run_record import RunMode

ScaleObserver = Callable[[int, float], None]
"""Told, by rank, of the time scale of a dilated run before its first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Whom a rank tells of its steps, and what it looks at beside them."""

    observer: Observer
    scaled: ScaleObserver = lambda _rank, _scale: None
    machine: bool = True
    """Whether the rank looks at what others take of the machine; one of the threads of a process does for all."""
    shares_device: bool = False
    """Whether other ranks use the same device."""


def train_rank(
    pipeline: Pipeline, batch: Batch, *, options: RunOptions, iteration_s: float, watch: Watch
) -> list[StepTrace]:
    """Train all steps on the same batch, so that the loss falls; all ranks begin each step together.

    One more step, after those that are timed, tells how much memory is used, except in dilated mode.

    Parameters
    ----------
    iteration_s
        As predicted.

    Returns
    -------
    list
        A trace for each step, in the times of the plan.

    Raises
    ------
    LossError
        If the loss of a step is no finite number.
    """
    scale = _set_time_scale(pipeline, batch, options=options, iteration_s=iteration_s)
    if isinstance(pipeline.pace, Dilation):
        watch.scaled(pipeline.role.rank, scale)
    traces = []
    for step in range(options.warmup + options.num_steps):
        trace = _step(pipeline, batch, options=options, machine=watch.machine)
        traces.append(trace if scale == 1.0 else trace.in_plan_time(scale))
        watch.observer(step, traces[-1])
    if options.mode is not RunMode.REAL:
        return traces
    peak_bytes = step_peak_bytes(pipeline, batch, shares_device=watch.shares_device)
    return [replace(trace, peak_memory_bytes=peak_bytes) for trace in traces]


def _set_time_scale(pipeline: Pipeline, batch: Batch, *, options: RunOptions, iteration_s: float) -> float:
    pace = pipeline.pace
    if not isinstance(pace, Dilation):
        return 1.0
    scale = options.time_scale or find_time_scale(pipeline, batch, iteration_s=iteration_s)
    pace.time_scale = scale
    return scale


def _step(pipeline: Pipeline, batch: Batch, *, options: RunOptions, machine: bool) -> StepTrace:
    passes = machine and pipeline.device.type == "cpu" and options.mode is RunMode.REAL
    before_s = memory_pass_s() if passes else None
    pipeline.transport.barrier()
    queue = RunQueue() if machine else None
    mark = queue.mark() if queue else None
    pipeline.step(batch)
    assert pipeline.last_step is not None
    return replace(
        pipeline.last_step,
        run_queue_share=queue.share_since(mark) if queue and mark else 0.0,
        memory_pass_s=None if before_s is None else max(before_s, memory_pass_s()),
        late_s=pipeline.pace.late_s if isinstance(pipeline.pace, Dilation) else 0.0,
    )
