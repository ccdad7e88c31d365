"""One rank of `plan run`, a process: training steps on random samples, and their outcome."""

from collections.abc import Callable
from datetime import UTC, datetime

from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.trace import Span, StepTrace
from stagecut.executor.ranks import environment
from stagecut.executor.ranks.failures import failure_report
from stagecut.executor.ranks.rank_process import end_rank
from stagecut.executor.ranks.world import World, join_world
from stagecut.executor.run.comparison import check_step
from stagecut.executor.run.loop import RunObserver, train_rank
from stagecut.executor.run.options import RunOptions, build_pipeline
from stagecut.executor.run.outcome import RunOutcome, outcome_of
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.planner.core.run_record import CheckRecord
from stagecut.planner.io.files.plan_file import PlanFile


def run_rank(
    plan_file: PlanFile, options: RunOptions, *, observer: RunObserver, finish: Callable[[RunOutcome], None]
) -> None:
    """Be one rank of a run; a failure is reported and ends the process.

    Parameters
    ----------
    finish
        Called on rank 0 with the outcome.
    """
    layout = RankLayout.of(plan_file.plan, plan_file.problem.cluster)
    world, pipeline = None, None
    try:
        world = join_world(
            device=None if options.device == "auto" else options.device, timeout_s=options.process_timeout_s(plan_file)
        )
        check = check_step(plan_file, options, world) if options.check else None
        pipeline, batch = build_pipeline(plan_file, options, world)
        outcome = train(
            pipeline, batch, plan_file=plan_file, options=options, world=world, observer=observer, check=check
        )
        world.leave()
        if outcome is not None:  # only after leaving, because a rank that dies there fails the run
            finish(outcome)
    except Exception as fault:
        rank = environment.rank()
        role = layout.roles[rank] if rank < layout.world_size else None
        action = pipeline.player.action if pipeline and pipeline.player else None
        report = failure_report(fault, role, action=action, rank=rank)
        end_rank(report, world, names=layout.names)


def train(
    pipeline: Pipeline,
    batch: Batch,
    *,
    plan_file: PlanFile,
    options: RunOptions,
    world: World,
    observer: RunObserver,
    check: CheckRecord | None = None,
) -> RunOutcome | None:
    """Train, and gather the times of all ranks.

    Returns
    -------
    RunOutcome or None
        None on all ranks but the first.

    Raises
    ------
    LossError
        If the loss of a step is not finite.
    """
    started = datetime.now(UTC)
    traces = train_rank(
        pipeline, batch, options=options, iteration_s=plan_file.predicted.iteration_s, observer=observer
    )
    gathered = world.gather(traces, classes=(StepTrace, Span))
    if gathered is None:
        return None
    steps = list(zip(*gathered, strict=True))
    return outcome_of(
        plan_file, steps, options=options, pipeline=pipeline, together=False, started=started, check=check
    )
