"""Progress of a run, on stderr."""

import math
import threading
import time
from typing import TYPE_CHECKING

import click

from stagecut.planner.report.labels import seconds_label
from stagecut.planner.report.run_tables import duration_label

if TYPE_CHECKING:
    from stagecut.executor.play.trace import StepTrace

LINE_EVERY_S = 1.0
"""Of steps that follow each other faster than this, not all are reported."""
NEWS_EVERY_S = 10.0
"""Interval of reports within a step of a dilated run, whose duration is known."""


class RunProgress:
    """Lines of rank 0 alone: the first step, the last, and others no faster than one can read."""

    def __init__(self, num_steps: int, *, iteration_s: float, quiet: bool) -> None:
        """The number of steps includes the warm-up, the iteration time is the predicted one; quiet prints nothing."""
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
        threading.Thread(target=self._tell_news, daemon=True).start()

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

    def _tell_news(self) -> None:
        """Report progress within long steps, until the last one is done."""
        while self._done < self._num_steps:
            time.sleep(NEWS_EVERY_S)
            now_s = time.monotonic()
            if self._done < self._num_steps and now_s - self._began_s >= NEWS_EVERY_S and self._step_s is not None:
                played, whole = duration_label(now_s - self._began_s), duration_label(self._step_s)
                self._say(f"step {self._done + 1} of {self._num_steps}: {played} of about {whole}")

    def _say(self, line: str) -> None:
        left = ""
        if self._step_s is not None and self._done < self._num_steps:
            left_s = (self._num_steps - self._done) * self._step_s - (time.monotonic() - self._began_s)
            left = f", about {duration_label(max(0.0, left_s))} left"
        click.echo(line + left, err=True)
