"""All ranks of `plan run` as threads of this process, which share one device."""

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from stagecut.executor.dilated.dilation import dilation_for
from stagecut.executor.loading import PaceMaker
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.layout import Layout
from stagecut.executor.play.thread_transport import TeamBrokenError
from stagecut.executor.play.trace import StepTrace
from stagecut.executor.run.comparison import check_team
from stagecut.executor.run.faults import describe
from stagecut.executor.run.loop import Watch, train_rank
from stagecut.executor.run.options import RunOptions, build_team
from stagecut.executor.run.outcome import Outcome, outcome_of
from stagecut.executor.run.run_folder import run_folder
from stagecut.executor.run.verdict import verdict
from stagecut.executor.team import Team
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.io.files.plan_file import PlanFile


def run_together(plan_file: PlanFile, options: RunOptions, *, watch: Watch) -> Outcome:
    """Train on one device with a thread, and on a GPU a stream, for each rank.

    Raises
    ------
    BadInputError
        For tensor parallelism of real layers, which needs processes.
    StagecutError
        If a rank fails; it says which one, and where.
    """
    with ExitStack() as stack:
        pace = None
        if options.mode is RunMode.DILATED:
            torch.set_num_threads(1)
            pace = _pace_maker(plan_file, options, stack.enter_context(run_folder()))
        check = check_team(plan_file, options) if options.check else None
        team, batch = build_team(plan_file, options, pace=pace)
        started = datetime.now(UTC)
        traces = _train(team, batch, plan_file=plan_file, options=options, watch=watch)
    steps = list(zip(*traces, strict=True))
    outcome = outcome_of(plan_file, steps, options=options, pipeline=team.pipelines[0], together=True, started=started)
    return replace(outcome, record=replace(outcome.record, check=check))


def _pace_maker(plan_file: PlanFile, options: RunOptions, folder: Path) -> PaceMaker:
    layout = Layout.of(plan_file.plan, plan_file.problem.cluster)
    return dilation_for(plan_file, layout, folder=folder, timeout_s=options.timeout_s)


def _train(
    team: Team, batch: Batch, *, plan_file: PlanFile, options: RunOptions, watch: Watch
) -> list[list[StepTrace]]:
    """Of every rank, its steps."""
    names = [str(pipeline.role) for pipeline in team.pipelines]

    def be_rank(pipeline: Pipeline) -> list[StepTrace]:
        own = replace(watch, machine=pipeline.role.rank == 0, shares_device=True)
        try:
            return train_rank(pipeline, batch, options=options, iteration_s=plan_file.predicted.iteration_s, watch=own)
        except TeamBrokenError:
            raise
        except Exception as fault:
            action = None if pipeline.player is None else pipeline.player.action
            report = describe(fault, pipeline.role, action=action)
            raise verdict([report], {}, names=names, timeout_s=options.timeout_s) from fault

    return team.each(be_rank)
