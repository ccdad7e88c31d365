"""`plan run`: train by a plan, and measure."""

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.cancellable import held, held_silently, unwound
from planner.cli.example import example
from planner.cli.files import InputFile, OutputFile
from planner.cli.option_groups import Command, general_options, is_verbose, option_group
from planner.cli.option_types import time_limit
from planner.cli.outputs import announce, print_json, write_file
from planner.cli.prediction import play
from planner.cli.repeatable import RepeatableCommand, own_arguments
from planner.cli.run_choices import RunChoices, run_options
from planner.cli.run_view import print_run
from planner.cli.streams import ClosedPipeError
from planner.core.errors import BadInputError
from planner.core.run_record import RunRecord
from planner.core.visible import visible
from planner.io.canonical import format_json
from planner.io.plan_file import PlanFile, read_plan_file
from planner.io.run_history import DEFAULT_HISTORY, append_run, check_appendable
from planner.io.run_record import to_tree
from planner.io.write import check_writable
from planner.report.labels import seconds_label, stage_labels
from planner.report.run_tables import check_label
from planner.report.run_trace import run_trace

if TYPE_CHECKING:
    from executor.play.trace import StepTrace
    from executor.run.outcome import Outcome

LONGEST_TIMEOUT_S = 1e6
"""Where no limit is asked for: eleven days."""
MAX_OVERRUN = 0.01
"""Share of a step by which a dilated run may be late for its planned times without a note."""
LINE_EVERY_S = 1.0
"""Steps that follow each other faster than this are not all told of."""


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
@click.option("--one-process", is_flag=True, help="All ranks as threads of one process, on one device: a single GPU.")
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
    one_process: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train by a plan, and measure.

    Starts a process for each device of the plan on this machine, trains some steps on random samples, and
    shows measured beside predicted times. Started by torchrun, it is one rank of a run on several hosts.
    Exit code 6 if --check finds a difference.
    """
    from executor.run.rank_process import become_rank, is_rank

    if is_rank():
        become_rank()
    if find_spec("torch") is None:
        raise BadInputError("plan run needs torch: pip install 'stagecut[run]'")
    plan_file = read_plan_file(path)
    timeout_s = min(timeout, LONGEST_TIMEOUT_S)
    if is_rank():
        _be_rank(plan_file, choices, outputs, timeout_s=timeout_s, quiet=quiet, as_json=as_json)
    elif one_process:
        outputs.check()
        _be_all_ranks(plan_file, choices, outputs, timeout_s=timeout_s, quiet=quiet, as_json=as_json)
    else:
        outputs.check()
        _launch(plan_file, choices, timeout_s=timeout_s, max_restarts=max_restarts, quiet=quiet)


def _launch(plan_file: PlanFile, choices: RunChoices, *, timeout_s: float, max_restarts: int, quiet: bool) -> None:
    from executor.run.launch import launch
    from executor.run.preflight import check_run, warnings

    options = choices.options(timeout_s)
    layout = check_run(plan_file, options)
    for warning in () if quiet else warnings(layout, options):
        click.echo(f"note: {visible(warning)}", err=True)
    try:
        with unwound():
            launch(
                ["-m", "planner.cli.main", "run", *own_arguments()],
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
    from executor.run.rank import run_rank
    from executor.run.rank_process import former_fault

    if os.environ["RANK"] == "0" and (fault := former_fault()) is not None:
        click.echo(f"started again after a fault: {visible(fault)}", err=True)
    num_steps = choices.warmup + choices.steps
    run_rank(
        plan_file,
        choices.options(timeout_s),
        observer=_steps_told(num_steps) if not quiet else lambda _step, _trace: None,
        finish=lambda outcome: _tell_as_rank(outcome, plan_file, outputs, quiet=quiet, as_json=as_json),
    )


def _tell_as_rank(outcome: "Outcome", plan_file: PlanFile, outputs: RunOutputs, *, quiet: bool, as_json: bool) -> None:
    """As :func:`_tell`; a rank dies of signals, but not now. Whoever started it tells of them."""
    with held_silently():
        _tell(outcome, plan_file, outputs, quiet=quiet, as_json=as_json)


def _be_all_ranks(
    plan_file: PlanFile, choices: RunChoices, outputs: RunOutputs, *, timeout_s: float, quiet: bool, as_json: bool
) -> None:
    from executor.run.one_process import run_together

    observer = _steps_told(choices.warmup + choices.steps) if not quiet else lambda _step, _trace: None
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
        _note_overrun(outcome)
        announce(written)
    _refuse_difference(outcome.record)


def _note_overrun(outcome: "Outcome") -> None:
    if outcome.overrun_s > MAX_OVERRUN * outcome.record.measured_s:
        click.echo(
            f"note: the work itself took up to {seconds_label(outcome.overrun_s)} of a step longer than planned: "
            "this machine is too slow for these layers in dilated mode; run smaller ones with --layers",
            err=True,
        )


def _refuse_difference(record: RunRecord) -> None:
    from executor.run.faults import CheckError

    if record.check is not None and not record.check.passed:
        raise CheckError(f"--check {check_label(record)}")


def _steps_told(num_steps: int) -> "Callable[[int, StepTrace], None]":
    """Lines on stderr, of rank 0 alone: the first step, the last, and others no faster than they can be read."""
    last_s = -math.inf

    def tell(step: int, trace: "StepTrace") -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if trace.rank == 0 and (step == num_steps - 1 or now_s - last_s >= LINE_EVERY_S):
            last_s = now_s
            seconds = seconds_label(trace.end_s - trace.start_s)
            click.echo(f"step {step + 1} of {num_steps}: loss {trace.loss:.6g}, {seconds}", err=True)

    return tell


def _trace_text(outcome: "Outcome", plan_file: PlanFile) -> str:
    from executor.play.layout import Layout
    from executor.run.record import lane_labels

    content = run_trace(
        play(plan_file.problem, plan_file.plan).timeline,
        outcome.spans,
        start_s=outcome.start_s,
        rank_labels=lane_labels(Layout.of(plan_file.plan, plan_file.problem.cluster)),
        stage_labels=stage_labels(plan_file.plan),
    )
    return json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n"
