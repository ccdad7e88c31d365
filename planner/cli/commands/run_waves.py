"""`plan run` of a plan of virtual workers that train through waves."""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from stagecut.planner.cli.commands.run_process import Progress, RunProcess
from stagecut.planner.cli.views.wave_run import print_wave_run
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.files.wave_plan_file import WavePlanFile
from stagecut.planner.io.files.wave_run_file import append_wave_run, to_tree
from stagecut.planner.report.waves.wave_perfetto import wave_run_trace
from stagecut.planner.report.waves.wave_run_table import drop_labels
from stagecut.planner.simulator.waves.timeline import simulate_waves

if TYPE_CHECKING:
    from stagecut.executor.run.options import RunOptions
    from stagecut.executor.run.preflight import Preflight
    from stagecut.executor.run.waves.outcome import WaveOutcome


class WaveRun(RunProcess[WavePlanFile, "WaveOutcome"]):
    """One run of a plan of virtual workers."""

    def _preflight(self, options: "RunOptions") -> "Preflight":
        from stagecut.executor.run.waves.preflight import check_wave_run

        return check_wave_run(self._plan_file, options, one_process=self._choices.one_process)

    def _train_rank(self, options: "RunOptions", finish: Callable[["WaveOutcome"], None]) -> None:
        from stagecut.executor.run.waves.dropping import drops_workers
        from stagecut.executor.run.waves.rank import run_wave_rank

        if options.drop_workers and not drops_workers(options) and os.environ["RANK"] == "0":
            click.echo("note: --drop-workers has no effect under torchrun, which ends all ranks with one", err=True)
        run_wave_rank(self._plan_file, options, observer=self._progress(), finish=finish)

    def _train_together(self, options: "RunOptions") -> "WaveOutcome":
        from stagecut.executor.run.waves.one_process import run_waves_together

        progress = self._progress()
        return run_waves_together(self._plan_file, options, observer=progress, scaled=progress.scaled)

    def _progress(self) -> "WaveProgress":
        return WaveProgress(self._choices.warmup + self._choices.steps + 1, quiet=self._quiet)

    def _tree(self, outcome: "WaveOutcome") -> Tree:
        return to_tree(outcome.record)

    def _print(self, outcome: "WaveOutcome") -> None:
        print_wave_run(outcome.record)

    def _append(self, outcome: "WaveOutcome") -> None:
        append_wave_run(self._outputs.history, outcome.record)

    def _warnings(self, outcome: "WaveOutcome") -> Iterable[str]:
        return drop_labels(outcome.record)

    def _trace(self, outcome: "WaveOutcome") -> dict[str, object]:
        waves, costs = outcome.waves, WaveCostModel(self._plan_file.problem).plan(self._plan_file.plan)
        timeline = simulate_waves(costs, num_waves=waves.stop + 1)
        return wave_run_trace(timeline, outcome.measured, waves=waves, time_scale=outcome.record.time_scale or 1.0)


class WaveProgress(Progress):
    """Progress lines of the first worker; the last wave is one of them."""

    def scaled(self, time_scale: float) -> None:
        """Report the time scale of a dilated run."""
        if not self.quiet:
            click.echo(f"time scale {time_scale:g}: everything takes so many times as long as planned", err=True)

    def __call__(self, wave: int) -> None:
        """Report the beginning of a wave."""
        if self.is_due(wave):
            click.echo(f"wave {wave + 1} of {self.num_steps}", err=True)
