"""The training steps of one rank of `plan run`, be it a process or a thread."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from stagecut.executor.dilated.dilation import Dilation
from stagecut.executor.dilated.time_scale import find_time_scale
from stagecut.executor.machine.memory_pass import memory_pass_s
from stagecut.executor.machine.run_queue import RunQueue
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.trace import StepTrace
from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.step_memory import step_peak_bytes
from stagecut.planner.core.run_record import RunMode


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObserver:
    """Callbacks for the progress of a run."""

    step: Callable[[int, StepTrace], None]
    """Called after every step of a rank, with its number from 0."""
    scaled: Callable[[int, float], None] = lambda _rank, _scale: None
    """Called with the rank and the time scale of a dilated run, before its first step."""


def train_rank(
    pipeline: Pipeline,
    batch: Batch,
    *,
    options: RunOptions,
    iteration_s: float,
    observer: RunObserver,
    watches_machine: bool = True,
    shares_device: bool = False,
) -> list[StepTrace]:
    """Train all steps on the same batch, so that the loss falls; all ranks begin each step together.

    Except in dilated mode, one more step after the timed ones measures memory.

    Parameters
    ----------
    iteration_s
        The predicted iteration time.
    watches_machine
        Whether to measure what other programs take of the machine; one thread of a process does so for all.
    shares_device
        Whether other ranks use the same device.

    Returns
    -------
    list
        A trace of each step, in plan time.

    Raises
    ------
    LossError
        If the loss of a step is not finite.
    """
    scale = 1.0
    if isinstance(pipeline.pace, Dilation):
        scale = options.time_scale or find_time_scale(pipeline, batch, iteration_s=iteration_s)
        pipeline.pace.time_scale = scale
        observer.scaled(pipeline.role.rank, scale)
    traces = []
    for step in range(options.warmup + options.num_steps):
        trace = _step(pipeline, batch, options=options, watches_machine=watches_machine)
        traces.append(trace if scale == 1.0 else trace.in_plan_time(scale))
        observer.step(step, traces[-1])
    if options.mode is not RunMode.REAL:
        return traces
    peak_bytes = step_peak_bytes(pipeline, batch, shares_device=shares_device)
    return [replace(trace, peak_memory_bytes=peak_bytes) for trace in traces]


def _step(pipeline: Pipeline, batch: Batch, *, options: RunOptions, watches_machine: bool) -> StepTrace:
    passes = watches_machine and pipeline.device.type == "cpu" and options.mode is RunMode.REAL
    before_s = memory_pass_s() if passes else None
    pipeline.transport.barrier()
    queue = RunQueue() if watches_machine else None
    mark = queue.mark() if queue else None
    pipeline.step(batch)
    assert pipeline.last_step is not None
    return replace(
        pipeline.last_step,
        run_queue_share=queue.share_since(mark) if queue and mark else 0.0,
        memory_pass_s=None if before_s is None else max(before_s, memory_pass_s()),
        late_s=pipeline.pace.late_s if isinstance(pipeline.pace, Dilation) else 0.0,
    )
