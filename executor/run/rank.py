"""One rank of `plan run`: so many training steps on random samples, and what came of them."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from executor.dilated.dilation import Dilation
from executor.measure.contamination import RunQueue
from executor.measure.memory_pass import memory_pass_s
from executor.pipeline import Pipeline
from executor.play.batch import Batch
from executor.play.layout import Layout
from executor.play.trace import Span, StepTrace
from executor.run.comparison import check_step
from executor.run.faults import describe
from executor.run.options import RunOptions, build_pipeline
from executor.run.outcome import Observer, Outcome, outcome_of
from executor.run.rank_process import end_rank
from executor.run.step_memory import step_peak_bytes
from executor.run.world import World, join_world
from planner.core.run_record import RunMode
from planner.io.plan_file import PlanFile


def run_rank(
    plan_file: PlanFile,
    options: RunOptions,
    *,
    observer: Observer,
    finish: Callable[[Outcome], None],
) -> None:
    """Be one rank of a run; a fault is reported and ends the process.

    Parameters
    ----------
    finish
        Called on rank 0 with what came of the run.
    """
    layout = Layout.of(plan_file.plan, plan_file.problem.cluster)
    world, pipeline = None, None
    try:
        world = join_world(device=None if options.device == "auto" else options.device, timeout_s=options.timeout_s)
        check = check_step(plan_file, options, world) if options.check else None
        pipeline, batch = build_pipeline(plan_file, options, world)
        outcome = train(pipeline, batch, plan_file=plan_file, options=options, world=world, observer=observer)
        world.leave()
        if outcome is not None:  # after leaving: a run that somebody dies in is not told as done
            finish(replace(outcome, record=replace(outcome.record, check=check)))
    except Exception as fault:
        rank = int(os.environ.get("RANK", "0"))
        role = layout.roles[rank] if rank < layout.world_size else None
        player = None if pipeline is None else pipeline.player
        action = None if player is None else player.action
        names = [str(role) for role in layout.roles]
        whereabouts, store = (None, None) if world is None else (world.whereabouts, world.store)
        end_rank(describe(fault, role, action=action, rank=rank), whereabouts, names=names, store=store)


def train(
    pipeline: Pipeline,
    batch: Batch,
    *,
    plan_file: PlanFile,
    options: RunOptions,
    world: World,
    observer: Observer,
) -> Outcome | None:
    """Train, and bring the times of all ranks together.

    Every step has the same random samples, so that the loss falls. The ranks begin each step together. One more,
    after those that are timed, tells how much memory is used, except in dilated mode.

    Returns
    -------
    Outcome or None
        None on all ranks but the first.

    Raises
    ------
    LossError
        If the loss of a step is no finite number.
    """
    started = datetime.now(UTC)
    traces, overruns_s = [], [0.0]
    for step in range(options.warmup + options.num_steps):
        traces.append(_step(pipeline, batch))
        if step >= options.warmup and isinstance(pipeline.pace, Dilation):
            overruns_s.append(pipeline.pace.overrun_s)
        observer(step, traces[-1])
    if options.mode is RunMode.REAL:
        peak_bytes = step_peak_bytes(pipeline, batch)
        traces = [replace(trace, peak_memory_bytes=peak_bytes) for trace in traces]
    gathered = world.gather((traces, max(overruns_s)), classes=(StepTrace, Span))
    if gathered is None:
        return None
    steps = list(zip(*(own for own, _ in gathered), strict=True))
    outcome = outcome_of(
        plan_file, steps, options=options, layout=pipeline.layout, device=world.device, started=started
    )
    return replace(outcome, overrun_s=max(overrun_s for _, overrun_s in gathered))


def _step(pipeline: Pipeline, batch: Batch) -> StepTrace:
    before_s = memory_pass_s() if pipeline.device.type == "cpu" else None
    pipeline.transport.barrier()
    queue = RunQueue()
    mark = queue.mark()
    pipeline.step(batch)
    assert pipeline.last_step is not None
    share = queue.share_since(mark)
    pass_s = None if before_s is None else max(before_s, memory_pass_s())
    return replace(pipeline.last_step, run_queue_share=share, memory_pass_s=pass_s)
