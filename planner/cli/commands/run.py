"""`plan run`: run a plan on torch and measure it."""

import math
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stagecut.planner.analysis.prediction import play
from stagecut.planner.cli.commands.run_waves import WaveRun
from stagecut.planner.cli.options.profile import require_torch
from stagecut.planner.cli.options.run import RunChoices, RunOutputs
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, is_verbose, option_group, quiet_option
from stagecut.planner.cli.process.cancellable import held, held_silently, unwound
from stagecut.planner.cli.process.streams import ClosedPipeError
from stagecut.planner.cli.process.writing import announce, compact_json, print_json
from stagecut.planner.cli.views.run import print_run
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.visible import visible
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.io.files.run_history import append_run, to_tree
from stagecut.planner.io.files.wave_plan_file import read_any_plan_file
from stagecut.planner.report.labels import seconds_label, stage_labels
from stagecut.planner.report.perfetto import run_trace
from stagecut.planner.report.run_tables import check_label, duration_label

if TYPE_CHECKING:
    from stagecut.executor.play.trace import StepTrace
    from stagecut.executor.run.loop import RunObserver
    from stagecut.executor.run.outcome import RunOutcome

ARGUMENTS = "stagecut.planner.cli.arguments"
"""Key of the context under which the command's own arguments are kept."""


class RepeatableCommand(click.Command):
    """A command that remembers its arguments, with which it starts itself again in other processes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See :meth:`click.Command.parse_args`."""
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


@click.command(
    "run",
    cls=RepeatableCommand,
    epilog=example("plan run plan.json --steps 20 --check", "plan run plan.json --mode dilated --trace run.json"),
)
@click.argument("path", metavar="PLAN", type=InputFile())
@option_group(RunChoices, argument="choices")
@option_group(RunOutputs, argument="outputs")
@quiet_option
@general_options
@click.pass_context
def command(
    context: click.Context, path: Path, choices: RunChoices, outputs: RunOutputs, *, quiet: bool, as_json: bool
) -> None:
    """Run a plan on torch and measure it.

    Starts one process per device of the plan on this machine, trains a few steps on random samples, and
    shows measured beside predicted times. In dilated mode any plan runs on this machine: small layers take
    as long as the plan says. Under torchrun this process is one rank of a run on several hosts.
    A plan of virtual workers also gets a process for each parameter server; its steps are waves.
    Exits with code 6 if --check finds a difference.
    """
    from stagecut.executor.ranks.environment import is_rank
    from stagecut.executor.ranks.rank_process import become_rank

    if is_rank():
        become_rank()
    require_torch("plan run")
    choices.check_mode()
    plan_file = read_any_plan_file(path)
    run: Run | WaveRun
    if isinstance(plan_file, PlanFile):
        run = Run(plan_file, choices, outputs, quiet=quiet, as_json=as_json)
    else:
        run = WaveRun(plan_file, choices, outputs, quiet=quiet, as_json=as_json)
    if is_rank():
        run.be_rank()
        return
    outputs.check()
    run.start(context.meta[ARGUMENTS])


class Run:
    """One run of a plan, from the checks before it to the answer."""

    def __init__(
        self, plan_file: PlanFile, choices: RunChoices, outputs: RunOutputs, *, quiet: bool, as_json: bool
    ) -> None:
        self._plan_file, self._choices, self._outputs = plan_file, choices, outputs
        self._quiet, self._as_json = quiet, as_json

    def start(self, arguments: Sequence[str]) -> None:
        """Run as threads of this process, or by starting this command again as a process for each rank."""
        if self.fits_one_process():
            self.be_all_ranks()
        else:
            self.launch(arguments)

    def fits_one_process(self) -> bool:
        """Refuse what cannot run, and print notes; whether all ranks are to be threads of this process."""
        from stagecut.executor.run.preflight import check_run, notes

        options = self._choices.options()
        preflight = check_run(self._plan_file, options, one_process=self._choices.one_process)
        for note in () if self._quiet else notes(preflight, options):
            click.echo(visible(note), err=True)
        return preflight.together

    def launch(self, arguments: Sequence[str]) -> None:
        """Start this command again as one process per rank."""
        from stagecut.executor.ranks.launch import launch
        from stagecut.executor.schedule.rank_layout import RankLayout

        layout = RankLayout.of(self._plan_file.plan, self._plan_file.problem.cluster)
        try:
            with unwound():
                launch(
                    ["-m", "stagecut", "run", *arguments],
                    num_ranks=layout.world_size,
                    names=layout.names,
                    max_restarts=self._choices.max_restarts,
                    timeout_s=self._choices.timeout_s,
                    verbose=is_verbose(),
                )
        except BadInputError as fault:
            if not fault.complaints:  # the rank that wrote the answer had nothing to say either
                raise ClosedPipeError from None
            raise

    def be_rank(self) -> None:
        """Be one rank of several; the first one prints the answer."""
        from stagecut.executor.ranks.reporting import previous_failure
        from stagecut.executor.run.rank import run_rank

        if os.environ["RANK"] == "0" and (fault := previous_failure()) is not None:
            click.echo(f"restarted after a fault: {visible(fault)}", err=True)

        def finish(outcome: "RunOutcome") -> None:
            with held_silently():  # signals kill a rank, but not while it answers; its launcher reports them
                self._answer(outcome)

        run_rank(self._plan_file, self._choices.options(), observer=self._observer(), finish=finish)

    def be_all_ranks(self) -> None:
        """Run all ranks as threads of this process."""
        from stagecut.executor.run.one_process import run_together

        with unwound():
            outcome = run_together(self._plan_file, self._choices.options(), observer=self._observer())
        self._answer(outcome)

    def _observer(self) -> "RunObserver":
        from stagecut.executor.run.loop import RunObserver

        choices, iteration_s = self._choices, self._plan_file.predicted.iteration_s
        progress = RunProgress(choices.warmup + choices.steps, iteration_s=iteration_s, quiet=self._quiet)
        return RunObserver(step=progress.step, scaled=progress.scaled)

    def _answer(self, outcome: "RunOutcome") -> None:
        """Write the files, print the answer, and refuse a check that failed."""
        from stagecut.executor.ranks.failures import CheckError

        record = outcome.record
        try:
            self._write(outcome)
        finally:
            if self._as_json:
                print_json(to_tree(record))
            else:
                print_run(record)
        if not self._quiet:
            announce(self._outputs.paths)
        if record.check is not None and not record.check.passed:
            raise CheckError(f"--check {check_label(record.check)}")

    def _write(self, outcome: "RunOutcome") -> None:
        outputs = self._outputs
        if outputs.output is not None:
            outputs.write(outputs.output, format_json(to_tree(outcome.record)))
        if outputs.trace is not None:
            outputs.write(outputs.trace, compact_json(self._trace(outcome)))
        with held():
            append_run(outputs.history, outcome.record)

    def _trace(self, outcome: "RunOutcome") -> dict[str, object]:
        from stagecut.executor.schedule.rank_layout import RankLayout

        problem, plan = self._plan_file.problem, self._plan_file.plan
        return run_trace(
            play(problem, plan).timeline,
            outcome.spans,
            start_s=outcome.start_s,
            rank_labels=RankLayout.of(plan, problem.cluster).names,
            stage_labels=stage_labels(plan),
        )


LINE_EVERY_S = 1.0
"""Shortest interval between two reported steps."""
REPORT_EVERY_S = 10.0
"""Interval between reports within a step of a dilated run, whose duration is known."""


class RunProgress:
    """Progress lines of rank 0: the first step, the last, and others no faster than one can read."""

    def __init__(self, num_steps: int, *, iteration_s: float, quiet: bool) -> None:
        """The number of steps includes the warm-up; the iteration time is the predicted one."""
        self._num_steps, self._iteration_s, self._quiet = num_steps, iteration_s, quiet
        self._last_s = -math.inf
        self._step_s: float | None = None
        """Expected duration of a step; None where unknown."""
        self._done, self._began_s = 0, 0.0

    def scaled(self, rank: int, time_scale: float) -> None:
        """Report the time scale of a dilated run, once known, and how long the run will take."""
        if self._quiet or rank != 0:
            return
        self._step_s = time_scale * self._iteration_s
        self._began_s = time.monotonic()
        steps = "1 step takes" if self._num_steps == 1 else f"{self._num_steps} steps take"
        click.echo(
            f"time scale {time_scale:g}: an iteration planned to take {seconds_label(self._iteration_s)} takes "
            f"{duration_label(self._step_s)} here; {steps} about {duration_label(self._num_steps * self._step_s)}",
            err=True,
        )
        threading.Thread(target=self._report_long_steps, daemon=True).start()

    def step(self, step: int, trace: "StepTrace") -> None:
        """Report a finished step."""
        if self._quiet or trace.rank != 0:
            return
        now_s = time.monotonic()
        self._done, self._began_s = step + 1, now_s
        if step == self._num_steps - 1 or now_s - self._last_s >= LINE_EVERY_S:
            self._last_s = now_s
            seconds = seconds_label(trace.end_s - trace.start_s)
            self._say(f"step {step + 1} of {self._num_steps}: loss {trace.loss:.6g}, {seconds}")

    def _report_long_steps(self) -> None:
        """Report how far a long step is, until the last one is done."""
        while self._done < self._num_steps:
            time.sleep(REPORT_EVERY_S)
            now_s = time.monotonic()
            if self._done < self._num_steps and now_s - self._began_s >= REPORT_EVERY_S and self._step_s is not None:
                played, whole = duration_label(now_s - self._began_s), duration_label(self._step_s)
                self._say(f"step {self._done + 1} of {self._num_steps}: {played} of about {whole}")

    def _say(self, line: str) -> None:
        left = ""
        if self._step_s is not None and self._done < self._num_steps:
            left_s = (self._num_steps - self._done) * self._step_s - (time.monotonic() - self._began_s)
            left = f", about {duration_label(max(0.0, left_s))} left"
        click.echo(line + left, err=True)
