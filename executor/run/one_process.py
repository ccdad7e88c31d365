"""All ranks of `plan run` as threads of this process, which share one device."""

from contextlib import ExitStack
from datetime import UTC, datetime

import torch

from stagecut.executor.dilated.dilation import dilation_for
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.trace import StepTrace
from stagecut.executor.ranks.run_folder import run_folder
from stagecut.executor.run.comparison import check_team
from stagecut.executor.run.loop import RunObserver, train_rank
from stagecut.executor.run.one_rank import failures_of
from stagecut.executor.run.options import RunOptions, build_team
from stagecut.executor.run.outcome import RunOutcome, outcome_of
from stagecut.executor.team import Team
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.simulator.action_lists import Action


def run_together(plan_file: PlanFile, options: RunOptions, *, observer: RunObserver) -> RunOutcome:
    """Train on one device with a thread, and on a GPU a stream, for each rank.

    Raises
    ------
    BadInputError
        For tensor parallelism of real layers, which needs processes.
    StagecutError
        If a rank fails; the message says which rank, and where.
    """
    with ExitStack() as stack:
        pace = None
        if options.mode is RunMode.DILATED:
            torch.set_num_threads(1)
            folder = stack.enter_context(run_folder())
            pace = dilation_for(plan_file, folder=folder, timeout_s=options.timeout_s)
        check = check_team(plan_file, options) if options.check else None
        team, batch = build_team(plan_file, options, pace=pace)
        started = datetime.now(UTC)
        traces = _train(team, batch, plan_file=plan_file, options=options, observer=observer)
    steps = list(zip(*traces, strict=True))
    return outcome_of(
        plan_file, steps, options=options, pipeline=team.pipelines[0], together=True, started=started, check=check
    )


def _train(
    team: Team, batch: Batch, *, plan_file: PlanFile, options: RunOptions, observer: RunObserver
) -> list[list[StepTrace]]:
    """The steps of every rank."""

    def be_rank(pipeline: Pipeline) -> list[StepTrace]:
        def action() -> Action | None:
            return pipeline.player.action if pipeline.player else None

        with failures_of(pipeline.role, pipeline.layout, timeout_s=options.timeout_s, action=action):
            return train_rank(
                pipeline,
                batch,
                options=options,
                iteration_s=plan_file.predicted.iteration_s,
                observer=observer,
                watches_machine=pipeline.role.rank == 0,
                shares_device=True,
            )

    return team.each(be_rank)
