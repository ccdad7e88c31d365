"""`plan run` of a plan of virtual workers that train through waves."""

import math
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stagecut.planner.cli.options.run import RunChoices, RunOutputs
from stagecut.planner.cli.parameters.groups import is_verbose
from stagecut.planner.cli.process.cancellable import held, held_silently, unwound
from stagecut.planner.cli.process.streams import ClosedPipeError
from stagecut.planner.cli.process.writing import announce, print_json
from stagecut.planner.cli.views.wave_run import print_wave_run
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.visible import visible
from stagecut.planner.core.wave_run_record import WaveRunRecord
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.wave_plan_file import WavePlanFile
from stagecut.planner.io.files.wave_run_file import append_wave_run, to_tree

if TYPE_CHECKING:
    from stagecut.executor.run.waves.preflight import WavePreflight

NO_TRACE = "--trace: runs of virtual workers are not drawn; `plan simulate --trace` draws the prediction"
LINE_EVERY_S = 1.0
"""Shortest interval between two reported waves."""


class WaveRun:
    """One run of a plan of virtual workers, from the checks before it to the answer."""

    def __init__(
        self, plan_file: WavePlanFile, choices: RunChoices, outputs: RunOutputs, *, quiet: bool, as_json: bool
    ) -> None:
        self._plan_file, self._choices, self._outputs = plan_file, choices, outputs
        self._quiet, self._as_json = quiet, as_json

    def start(self, arguments: Sequence[str]) -> None:
        """Refuse what cannot run, print notes, and run: as threads of this process, or this command once per rank."""
        from stagecut.executor.run.waves.preflight import check_wave_run, wave_notes

        if self._outputs.trace is not None:
            raise BadInputError(NO_TRACE)
        options = self._choices.options()
        preflight = check_wave_run(self._plan_file, options, one_process=self._choices.one_process)
        for note in () if self._quiet else wave_notes(preflight, options):
            click.echo(visible(note), err=True)
        if preflight.together:
            self._be_all_ranks()
        else:
            self._launch(arguments, preflight)

    def be_rank(self) -> None:
        """Be one rank of several; the first one prints the answer."""
        from stagecut.executor.ranks.reporting import previous_failure
        from stagecut.executor.run.waves.rank import run_wave_rank

        if os.environ["RANK"] == "0" and (fault := previous_failure()) is not None:
            click.echo(f"restarted after a fault: {visible(fault)}", err=True)

        def finish(record: WaveRunRecord) -> None:
            with held_silently():  # signals kill a rank, but not while it answers; its launcher reports them
                self._answer(record)

        run_wave_rank(self._plan_file, self._choices.options(), observer=self._progress(), finish=finish)

    def _launch(self, arguments: Sequence[str], preflight: "WavePreflight") -> None:
        from stagecut.executor.ranks.launch import launch

        try:
            with unwound():
                launch(
                    ["-m", "stagecut", "run", *arguments],
                    num_ranks=preflight.layout.world_size,
                    names=preflight.layout.names,
                    max_restarts=self._choices.max_restarts,
                    timeout_s=self._choices.timeout_s,
                    verbose=is_verbose(),
                )
        except BadInputError as fault:
            if not fault.complaints:  # the rank that wrote the answer had nothing to say either
                raise ClosedPipeError from None
            raise

    def _be_all_ranks(self) -> None:
        from stagecut.executor.run.waves.one_process import run_waves_together

        progress = self._progress()
        with unwound():
            record = run_waves_together(
                self._plan_file, self._choices.options(), observer=progress, scaled=progress.scaled
            )
        self._answer(record)

    def _progress(self) -> "WaveProgress":
        return WaveProgress(self._choices.warmup + self._choices.steps + 1, quiet=self._quiet)

    def _answer(self, record: WaveRunRecord) -> None:
        """Write the files and print the answer."""
        outputs = self._outputs
        try:
            if outputs.output is not None:
                outputs.write(outputs.output, format_json(to_tree(record)))
            with held():
                append_wave_run(outputs.history, record)
        finally:
            if self._as_json:
                print_json(to_tree(record))
            else:
                print_wave_run(record)
        if not self._quiet:
            announce(outputs.paths)


class WaveProgress:
    """Progress lines: the first wave, the last, and others no faster than one can read."""

    def __init__(self, num_waves: int, *, quiet: bool) -> None:
        """The number of waves includes the warm-up and the last one."""
        self._num_waves, self._quiet, self._last_s = num_waves, quiet, -math.inf

    def scaled(self, time_scale: float) -> None:
        """Report the time scale of a dilated run."""
        if not self._quiet:
            click.echo(f"time scale {time_scale:g}: everything takes so many times as long as planned", err=True)

    def __call__(self, wave: int) -> None:
        """Report the beginning of a wave."""
        now_s = time.monotonic()
        if not self._quiet and (wave == self._num_waves - 1 or now_s - self._last_s >= LINE_EVERY_S):
            self._last_s = now_s
            click.echo(f"wave {wave + 1} of {self._num_waves}", err=True)
