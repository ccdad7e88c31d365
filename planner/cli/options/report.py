"""What `plan report` shows beside the plan, and the page that it writes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagecut.planner.analysis.even_split import EVEN, even_split_s
from stagecut.planner.analysis.prediction import play
from stagecut.planner.analysis.wave_prediction import play_waves
from stagecut.planner.analysis.wave_recheck import certified_waves
from stagecut.planner.analysis.wave_what_if import WaveWhatIf
from stagecut.planner.analysis.what_if import WhatIfOutcome, certified_result
from stagecut.planner.cli.options.outputs import AnnouncedOutputs, check_page
from stagecut.planner.cli.parameters.files import InputFile, output_option
from stagecut.planner.cli.parameters.groups import option
from stagecut.planner.core.run_record import RunRecord
from stagecut.planner.core.virtual_workers.wave_run_record import WaveRunRecord
from stagecut.planner.io.files.answers.answer_file import (
    read_compare_answer,
    read_explain_answer,
    read_run_of,
    read_solve_answer,
)
from stagecut.planner.io.files.answers.wave_answer_file import (
    read_wave_compare_answer,
    read_wave_explain_answer,
    read_wave_solve_answer,
)
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.io.files.wave_plan_file import AnyPlanFile, WavePlanFile
from stagecut.planner.report.page.contents import Contents
from stagecut.planner.report.page.page import Page
from stagecut.planner.report.page.plan_page import plan_page
from stagecut.planner.report.waves.wave_contents import WaveContents
from stagecut.planner.report.waves.wave_page import wave_page
from stagecut.planner.simulator.binding import what_binds

EVEN_LIMIT_S = 10.0
"""Most seconds for the even split: for gpt3-175b on 4,096 devices it takes 0.9 s."""


def _answer_option(flag: str, text: str) -> Any:
    return option(flag, type=InputFile(), metavar="FILE", help=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOutputs(AnnouncedOutputs):
    """The page."""

    output: Path = output_option("-o", "--output", required=True, text="Write the page to this file (.html).")

    def check(self) -> None:
        """See :meth:`Outputs.check`."""
        check_page(self.output)
        AnnouncedOutputs.check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What else is known about the plan."""

    run: Path | None = _answer_option("--run", "Show a run beside it: the record that `plan run` wrote.")
    solve: Path | None = _answer_option("--solve", "Show the search: what `plan solve --json` printed.")
    compare: Path | None = _answer_option("--compare", "Show other solvers: what `plan compare --json` printed.")
    explain: Path | None = _answer_option("--explain", "Show more hardware: what `plan explain --json` printed.")

    def page(self, plan_file: AnyPlanFile) -> Page:
        """The plan with all that was given about it."""
        if isinstance(plan_file, WavePlanFile):
            return wave_page(self._of_workers(plan_file))
        return plan_page(self._of_pipelines(plan_file))

    def _of_pipelines(self, plan_file: PlanFile) -> Contents:
        played = play(plan_file.problem, plan_file.plan)
        iteration_s = played.timeline.iteration_s
        found = () if self.explain is None else read_explain_answer(self.explain, plan_file)
        claimed = certified_result(plan_file, iteration_s)
        compares = plan_file.problem.variants and plan_file.certificate.solver != EVEN
        return Contents(
            played=played,
            result=claimed if self.solve is None else read_solve_answer(self.solve, plan_file),
            binding=what_binds(played.costs, played.timeline),
            provenance=plan_file.provenance,
            compared=() if self.compare is None else read_compare_answer(self.compare, plan_file),
            what_if=tuple(
                WhatIfOutcome(what=what, unit=unit, planned_s=iteration_s, result=result)
                for what, unit, result in found
            ),
            run=None if self.run is None else read_run_of(self.run, plan_file, RunRecord),
            even_split_s=even_split_s(plan_file.problem, time_limit_s=EVEN_LIMIT_S) if compares else None,
        )

    def _of_workers(self, plan_file: WavePlanFile) -> WaveContents:
        played = play_waves(plan_file.problem, plan_file.plan)
        samples_per_s = played.timeline.samples_per_s
        found = () if self.explain is None else read_wave_explain_answer(self.explain, plan_file)
        claimed = certified_waves(plan_file, samples_per_s)
        return WaveContents(
            played=played,
            result=claimed if self.solve is None else read_wave_solve_answer(self.solve, plan_file),
            provenance=plan_file.provenance,
            compared=() if self.compare is None else read_wave_compare_answer(self.compare, plan_file),
            what_if=tuple(
                WaveWhatIf(what=what, unit=unit, planned_samples_per_s=samples_per_s, result=result)
                for what, unit, result in found
            ),
            run=None if self.run is None else read_run_of(self.run, plan_file, WaveRunRecord),
        )
