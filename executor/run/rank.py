"""One rank of `plan run`, a process: training steps on random samples, and their outcome."""

from collections.abc import Callable
from datetime import UTC, datetime

from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.trace import Span, StepTrace
from stagecut.executor.ranks.world import World, join_world
from stagecut.executor.run.comparison import check_step
from stagecut.executor.run.loop import RunObserver, train_rank
from stagecut.executor.run.one_rank import be_rank
from stagecut.executor.run.options import RunOptions, build_pipeline
from stagecut.executor.run.outcome import RunOutcome, outcome_of
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.planner.core.run_record import CheckRecord
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.simulator.action_lists import Action


def run_rank(
    plan_file: PlanFile, options: RunOptions, *, observer: RunObserver, finish: Callable[[RunOutcome], None]
) -> None:
    """Be one rank of a run; a failure is reported and ends the process.

    Parameters
    ----------
    finish
        Called on rank 0 with the outcome.
    """
    pipelines: list[Pipeline] = []

    def work(world: World) -> RunOutcome | None:
        check = check_step(plan_file, options, world) if options.check else None
        pipeline, batch = build_pipeline(plan_file, options, world)
        pipelines.append(pipeline)
        outcome = train(
            pipeline, batch, plan_file=plan_file, options=options, world=world, observer=observer, check=check
        )
        world.leave()
        return outcome

    def action() -> Action | None:
        return next((each.player.action for each in pipelines if each.player), None)

    device, timeout_s = None if options.device == "auto" else options.device, options.process_timeout_s(plan_file)
    be_rank(
        work,
        layout=RankLayout.of(plan_file.plan, plan_file.problem.cluster),
        join=lambda: join_world(device=device, timeout_s=timeout_s),
        finish=finish,
        action=action,
    )


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
