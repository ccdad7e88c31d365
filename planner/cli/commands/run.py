"""`plan run`: train by a plan, and measure."""

import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stagecut.planner.cli.options.example import example
from stagecut.planner.cli.options.files import InputFile, OutputFile
from stagecut.planner.cli.options.groups import Command, general_options, is_verbose, option_group
from stagecut.planner.cli.options.outputs import announce, print_json, write_file
from stagecut.planner.cli.options.repeatable import RepeatableCommand, own_arguments
from stagecut.planner.cli.options.run import RunChoices, run_options
from stagecut.planner.cli.options.types import time_limit
from stagecut.planner.cli.prediction import play
from stagecut.planner.cli.process.cancellable import held, held_silently, unwound
from stagecut.planner.cli.process.streams import ClosedPipeError
from stagecut.planner.cli.views.run import print_run
from stagecut.planner.cli.views.run_progress import RunProgress
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.run_record import RunRecord
from stagecut.planner.core.visible import visible
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.write import check_writable
from stagecut.planner.io.files.plan_file import PlanFile, read_plan_file
from stagecut.planner.io.files.run_history import DEFAULT_HISTORY, append_run, check_appendable
from stagecut.planner.io.files.run_record import to_tree
from stagecut.planner.report.labels import stage_labels
from stagecut.planner.report.run_tables import check_label
from stagecut.planner.report.run_trace import run_trace

if TYPE_CHECKING:
    from stagecut.executor.run.options import RunOptions
    from stagecut.executor.run.outcome import Outcome

LONGEST_TIMEOUT_S = 1e6
"""Where no limit is asked for: eleven days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutputs:
    """Files that a run is written to."""

    output: Path | None
    trace: Path | None
    history: Path | None
    force: bool

    def check(self) -> None:
        """Complain now of what could not be written later."""
        for path in (self.output, self.trace):
            if path is not None:
                check_writable(path, force=self.force)
        if self.history is not None:
            check_appendable(self.history)

    def write(self, outcome: "Outcome", plan_file: PlanFile) -> tuple[Path, ...]:
        """Write all that was asked for; the files written."""
        if self.output is not None:
            write_file(self.output, format_json(to_tree(outcome.record)), force=self.force)
        if self.trace is not None:
            write_file(self.trace, _trace_text(outcome, plan_file), force=self.force)
        if self.history is not None:
            with held():
                append_run(self.history, outcome.record)
        return tuple(path for path in (self.output, self.trace, self.history) if path is not None)


def output_options(command: Command) -> Command:
    """Give a command -o, --trace, --history and --force, as its argument `outputs`."""
    path = OutputFile()
    options = (
        click.option("-o", "--output", type=path, metavar="FILE", help="Write the record of the run."),
        click.option(
            "--trace", type=path, metavar="FILE", help="Write predicted and measured lanes for ui.perfetto.dev."
        ),
        click.option(
            "--history", type=path, metavar="FILE", default=DEFAULT_HISTORY, show_default=True, help="Append the run."
        ),
        click.option("--force", is_flag=True, help="Overwrite files that exist."),
    )
    return option_group(command, options, argument="outputs", build=RunOutputs)


@click.command(
    "run",
    cls=RepeatableCommand,
    epilog=example("plan run plan.json --steps 20 --check", "plan run plan.json --mode dilated --trace run.json"),
)
@click.argument("path", metavar="PLAN", type=InputFile())
@run_options
@click.option(
    "--timeout", type=time_limit, metavar="SECONDS", default="120", help="Of one rank for another.  [default: 120]"
)
@click.option(
    "--max-restarts",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    help="Start all ranks again so often after one failed.",
)
@click.option(
    "--one-process/--own-processes",
    default=None,
    help="All ranks as threads of one process, on one device, or each as a process.  [default: own processes; "
    "in dilated mode one process]",
)
@output_options
@click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
@general_options
def command(
    path: Path,
    choices: RunChoices,
    timeout: float,
    max_restarts: int,
    outputs: RunOutputs,
    *,
    one_process: bool | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train by a plan, and measure.

    Starts a process for each device of the plan on this machine, trains some steps on random samples, and
    shows measured beside predicted times. In dilated mode any plan plays on this machine, with small layers
    in the times of the plan. Started by torchrun, it is one rank of a run on several hosts.
    Exit code 6 if --check finds a difference.
    """
    from stagecut.executor.ranks.environment import is_rank
    from stagecut.executor.ranks.rank_process import become_rank

    if is_rank():
        become_rank()
    if find_spec("torch") is None:
        raise BadInputError("plan run needs torch: pip install 'stagecut[run]'")
    choices.refuse_idle()
    plan_file = read_plan_file(path)
    timeout_s = min(timeout, LONGEST_TIMEOUT_S)
    if is_rank():
        _be_rank(plan_file, choices, outputs, timeout_s=timeout_s, quiet=quiet, as_json=as_json)
        return
    outputs.check()
    if _before_start(plan_file, choices.options(timeout_s), one_process=one_process, quiet=quiet):
        _be_all_ranks(plan_file, choices, outputs, timeout_s=timeout_s, quiet=quiet, as_json=as_json)
    else:
        _launch(plan_file, timeout_s=timeout_s, max_restarts=max_restarts)


def _before_start(plan_file: PlanFile, options: "RunOptions", *, one_process: bool | None, quiet: bool) -> bool:
    """Refuse what cannot run, say what is known of what can; whether all ranks are threads of this process."""
    from stagecut.executor.run.preflight import check_run, notes

    preflight = check_run(plan_file, options, one_process=one_process)
    for note in () if quiet else notes(preflight, options):
        click.echo(visible(note), err=True)
    return preflight.together


def _launch(plan_file: PlanFile, *, timeout_s: float, max_restarts: int) -> None:
    from stagecut.executor.ranks.launch import launch
    from stagecut.executor.schedule.rank_layout import RankLayout

    layout = RankLayout.of(plan_file.plan, plan_file.problem.cluster)
    try:
        with unwound():
            launch(
                ["-m", "stagecut", "run", *own_arguments()],
                num_ranks=layout.world_size,
                names=[str(role) for role in layout.roles],
                max_restarts=max_restarts,
                timeout_s=timeout_s,
                verbose=is_verbose(),
            )
    except BadInputError as fault:
        if not fault.complaints:  # nor had the rank that wrote the answer anything to say
            raise ClosedPipeError from None
        raise


def _be_rank(
    plan_file: PlanFile, choices: RunChoices, outputs: RunOutputs, *, timeout_s: float, quiet: bool, as_json: bool
) -> None:
    from stagecut.executor.ranks.reporting import previous_failure
    from stagecut.executor.run.loop import RunObserver
    from stagecut.executor.run.rank import run_rank

    if os.environ["RANK"] == "0" and (fault := previous_failure()) is not None:
        click.echo(f"started again after a fault: {visible(fault)}", err=True)
    progress = _progress(plan_file, choices, quiet=quiet)
    run_rank(
        plan_file,
        choices.options(timeout_s),
        observer=RunObserver(step=progress.step, scaled=progress.scaled),
        finish=lambda outcome: _tell_as_rank(outcome, plan_file, outputs, quiet=quiet, as_json=as_json),
    )


def _tell_as_rank(outcome: "Outcome", plan_file: PlanFile, outputs: RunOutputs, *, quiet: bool, as_json: bool) -> None:
    """As :func:`_tell`; a rank dies of signals, but not now. Whoever started it tells of them."""
    with held_silently():
        _tell(outcome, plan_file, outputs, quiet=quiet, as_json=as_json)


def _be_all_ranks(
    plan_file: PlanFile, choices: RunChoices, outputs: RunOutputs, *, timeout_s: float, quiet: bool, as_json: bool
) -> None:
    from stagecut.executor.run.loop import RunObserver
    from stagecut.executor.run.one_process import run_together

    progress = _progress(plan_file, choices, quiet=quiet)
    observer = RunObserver(step=progress.step, scaled=progress.scaled)
    with unwound():
        outcome = run_together(plan_file, choices.options(timeout_s), observer=observer)
    _tell(outcome, plan_file, outputs, quiet=quiet, as_json=as_json)


def _tell(outcome: "Outcome", plan_file: PlanFile, outputs: RunOutputs, *, quiet: bool, as_json: bool) -> None:
    """Print the answer, write the files, and complain of a check that failed."""
    try:
        written = outputs.write(outcome, plan_file)
    finally:
        if as_json:
            print_json(to_tree(outcome.record))
        else:
            print_run(outcome.record)
    if not quiet:
        announce(written)
    _refuse_difference(outcome.record)


def _refuse_difference(record: RunRecord) -> None:
    from stagecut.executor.ranks.failures import CheckError

    if record.check is not None and not record.check.passed:
        raise CheckError(f"--check {check_label(record)}")


def _progress(plan_file: PlanFile, choices: RunChoices, *, quiet: bool) -> RunProgress:
    return RunProgress(choices.warmup + choices.steps, iteration_s=plan_file.predicted.iteration_s, quiet=quiet)


def _trace_text(outcome: "Outcome", plan_file: PlanFile) -> str:
    from stagecut.executor.run.record import lane_labels
    from stagecut.executor.schedule.rank_layout import RankLayout

    content = run_trace(
        play(plan_file.problem, plan_file.plan).timeline,
        outcome.spans,
        start_s=outcome.start_s,
        rank_labels=lane_labels(RankLayout.of(plan_file.plan, plan_file.problem.cluster)),
        stage_labels=stage_labels(plan_file.plan),
    )
    return json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n"
