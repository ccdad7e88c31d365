"""One rank of `plan run`: so many training steps on random samples, and what came of them."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.layout import Layout
from stagecut.executor.play.trace import Span, StepTrace
from stagecut.executor.run.comparison import check_step
from stagecut.executor.run.faults import describe
from stagecut.executor.run.loop import ScaleObserver, Watch, train_rank
from stagecut.executor.run.options import RunOptions, build_pipeline
from stagecut.executor.run.outcome import Observer, Outcome, outcome_of
from stagecut.executor.run.rank_process import end_rank
from stagecut.executor.run.world import World, join_world
from stagecut.planner.io.files.plan_file import PlanFile


def run_rank(
    plan_file: PlanFile,
    options: RunOptions,
    *,
    observer: Observer,
    finish: Callable[[Outcome], None],
    scaled: ScaleObserver = lambda _rank, _scale: None,
) -> None:
    """Be one rank of a run; a fault is reported and ends the process.

    Parameters
    ----------
    finish
        Called on rank 0 with what came of the run.
    scaled
        Called with the time scale of a dilated run, before its first step.
    """
    layout = Layout.of(plan_file.plan, plan_file.problem.cluster)
    world, pipeline = None, None
    try:
        world = join_world(
            device=None if options.device == "auto" else options.device, timeout_s=options.patience_s(plan_file)
        )
        check = check_step(plan_file, options, world) if options.check else None
        pipeline, batch = build_pipeline(plan_file, options, world)
        outcome = train(
            pipeline, batch, plan_file=plan_file, options=options, world=world, observer=observer, scaled=scaled
        )
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
    scaled: ScaleObserver = lambda _rank, _scale: None,
) -> Outcome | None:
    """Train, and bring the times of all ranks together.

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
    traces = train_rank(
        pipeline,
        batch,
        options=options,
        iteration_s=plan_file.predicted.iteration_s,
        watch=Watch(observer=observer, scaled=scaled),
    )
    gathered = world.gather(traces, classes=(StepTrace, Span))
    if gathered is None:
        return None
    steps = list(zip(*gathered, strict=True))
    return outcome_of(plan_file, steps, options=options, pipeline=pipeline, together=False, started=started)
