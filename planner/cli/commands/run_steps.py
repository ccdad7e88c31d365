"""`plan run` of a plan that synchronises its gradients in every step."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from stagecut.planner.analysis.prediction import play
from stagecut.planner.cli.commands.run_process import Progress, RunProcess
from stagecut.planner.cli.views.run import print_run
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.io.files.run_history import append_run, to_tree
from stagecut.planner.report.labels import seconds_label, stage_labels
from stagecut.planner.report.perfetto import run_trace
from stagecut.planner.report.run_tables import duration_label

if TYPE_CHECKING:
    from stagecut.executor.play.trace import StepTrace
    from stagecut.executor.run.loop import RunObserver
    from stagecut.executor.run.options import RunOptions
    from stagecut.executor.run.outcome import RunOutcome
    from stagecut.executor.run.preflight import Preflight


class StepRun(RunProcess[PlanFile, "RunOutcome"]):
    """One run, step by step."""

    def _preflight(self, options: "RunOptions") -> "Preflight":
        from stagecut.executor.run.preflight import check_run

        return check_run(self._plan_file, options, one_process=self._choices.one_process)

    def _train_rank(self, options: "RunOptions", finish: Callable[["RunOutcome"], None]) -> None:
        from stagecut.executor.run.rank import run_rank

        run_rank(self._plan_file, options, observer=self._observer(), finish=finish)

    def _train_together(self, options: "RunOptions") -> "RunOutcome":
        from stagecut.executor.run.one_process import run_together

        return run_together(self._plan_file, options, observer=self._observer())

    def _observer(self) -> "RunObserver":
        from stagecut.executor.run.loop import RunObserver

        choices, iteration_s = self._choices, self._plan_file.predicted.iteration_s
        progress = RunProgress(choices.warmup + choices.steps, iteration_s=iteration_s, quiet=self._quiet)
        return RunObserver(step=progress.step, scaled=progress.scaled)

    def _tree(self, outcome: "RunOutcome") -> Tree:
        return to_tree(outcome.record)

    def _print(self, outcome: "RunOutcome") -> None:
        print_run(outcome.record)

    def _append(self, outcome: "RunOutcome") -> None:
        append_run(self._outputs.history, outcome.record)

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


REPORT_EVERY_S = 10.0
"""Interval between reports within a step of a dilated run, whose duration is known."""


class RunProgress(Progress):
    """Progress lines of rank 0."""

    def __init__(self, num_steps: int, *, iteration_s: float, quiet: bool) -> None:
        """The number of steps includes the warm-up; the iteration time is the predicted one."""
        super().__init__(num_steps, quiet=quiet)
        self._iteration_s = iteration_s
        self._step_s: float | None = None
        """Expected duration of a step; None where unknown."""
        self._done, self._began_s = 0, 0.0

    def scaled(self, rank: int, time_scale: float) -> None:
        """Report the time scale of a dilated run, once known, and how long the run will take."""
        if self.quiet or rank != 0:
            return
        self._step_s = time_scale * self._iteration_s
        self._began_s = time.monotonic()
        steps = "1 step takes" if self.num_steps == 1 else f"{self.num_steps} steps take"
        click.echo(
            f"time scale {time_scale:g}: an iteration planned to take {seconds_label(self._iteration_s)} takes "
            f"{duration_label(self._step_s)} here; {steps} about {duration_label(self.num_steps * self._step_s)}",
            err=True,
        )
        threading.Thread(target=self._report_long_steps, daemon=True).start()

    def step(self, step: int, trace: "StepTrace") -> None:
        """Report a finished step."""
        if self.quiet or trace.rank != 0:
            return
        self._done, self._began_s = step + 1, time.monotonic()
        if self.is_due(step):
            seconds = seconds_label(trace.end_s - trace.start_s)
            self._say(f"step {step + 1} of {self.num_steps}: loss {trace.loss:.6g}, {seconds}")

    def _report_long_steps(self) -> None:
        """Report how far a long step is, until the last one is done."""
        while self._done < self.num_steps:
            time.sleep(REPORT_EVERY_S)
            now_s = time.monotonic()
            if self._done < self.num_steps and now_s - self._began_s >= REPORT_EVERY_S and self._step_s is not None:
                played, whole = duration_label(now_s - self._began_s), duration_label(self._step_s)
                self._say(f"step {self._done + 1} of {self.num_steps}: {played} of about {whole}")

    def _say(self, line: str) -> None:
        left = ""
        if self._step_s is not None and self._done < self.num_steps:
            left_s = (self.num_steps - self._done) * self._step_s - (time.monotonic() - self._began_s)
            left = f", about {duration_label(max(0.0, left_s))} left"
        click.echo(line + left, err=True)
