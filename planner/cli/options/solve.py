"""What `plan solve` writes, and how its time limit covers everything up to the last output."""

from dataclasses import dataclass
from pathlib import Path

import click

from stagecut.planner.analysis.prediction import Played
from stagecut.planner.analysis.wave_prediction import PlayedWaves
from stagecut.planner.cli.options.outputs import PAGE_S, Pictures, check_page, page_seconds
from stagecut.planner.cli.parameters.files import output_option
from stagecut.planner.cli.process.lazy_group import seconds_since_start
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.plan_file import PlanFile, to_tree
from stagecut.planner.io.files.wave_plan_file import WavePlanFile
from stagecut.planner.io.files.wave_plan_file import to_tree as wave_tree
from stagecut.planner.report.convergence import convergence_bytes
from stagecut.planner.report.images import image_format
from stagecut.planner.report.page.contents import Contents
from stagecut.planner.report.page.page import page_bytes
from stagecut.planner.report.page.plan_page import plan_page
from stagecut.planner.report.waves.wave_contents import WaveContents
from stagecut.planner.report.waves.wave_page import wave_page
from stagecut.planner.simulator.binding import what_binds

CONVERGENCE = "a convergence chart"
EVEN_SHARE, EVEN_RESERVE_S, EVEN_TIME_LIMIT_S = 0.1, 2.0, 10.0
"""Share of the time limit kept for the even split, the most seconds kept, and the most that it may take: for gpt3-175b
on 4,096 devices it takes 0.9 s, on 512 devices 0.4 s."""
LEAST_SEARCH_S = 0.6
"""Time for a search even where reading the files used up the whole limit: compiled loops take 0.35 s to load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOutputs(Pictures):
    """Files to write."""

    output: Path | None = output_option("-o", "--output", text="Write the plan file.")
    convergence: Path | None = output_option(
        "--convergence", text="Write a chart of best time and bound over the search (.png or .svg)."
    )

    report: Path | None = output_option("--report", text="Write all about the plan as one offline page (.html).")

    def check(self) -> None:
        """See :meth:`Outputs.check`."""
        if self.report is not None:
            check_page(self.report)
        if self.convergence is not None:
            image_format(self.convergence, what=CONVERGENCE)
        Pictures.check(self)

    def seconds(self, plan: Plan) -> float:
        """See :meth:`Pictures.seconds`."""
        return Pictures.seconds(self, plan) + (0.0 if self.report is None else page_seconds(plan))

    def write_all(
        self,
        problem: Problem,
        result: Result,
        *,
        played: Played | None,
        plan_file: PlanFile | None,
        even_split_s: float | None,
    ) -> tuple[Path, ...]:
        """Write all files that were asked for, without a plan only the convergence chart; return those written."""
        if plan_file is not None and self.output is not None:
            self.write(self.output, format_json(to_tree(plan_file)))
        if played is not None:
            self.draw(played)
        if played is not None and plan_file is not None and self.report is not None:
            contents = Contents(
                played=played,
                result=result,
                binding=what_binds(played.costs, played.timeline),
                provenance=plan_file.provenance,
                even_split_s=even_split_s,
            )
            self.write(self.report, page_bytes(plan_page(contents)))
        if self.convergence is not None:
            title = f"{problem.model.name} on {problem.cluster.name}"
            image = image_format(self.convergence, what=CONVERGENCE)
            self.write(self.convergence, convergence_bytes(result, image, title=title))
        return tuple(path for path in self.paths if played is not None or path == self.convergence)

    def wave_seconds(self) -> float:
        """See :meth:`Pictures.wave_seconds`."""
        return Pictures.wave_seconds(self) + (0.0 if self.report is None else PAGE_S)

    def write_waves(self, played: PlayedWaves, result: WaveResult, plan_file: WavePlanFile) -> tuple[Path, ...]:
        """Write all files that were asked for about virtual workers; return them."""
        if self.output is not None:
            self.write(self.output, format_json(wave_tree(plan_file)))
        self.draw_waves(played)
        if self.report is not None:
            contents = WaveContents(played=played, result=result, provenance=plan_file.provenance)
            self.write(self.report, page_bytes(wave_page(contents)))
        return self.paths


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """How the time limit is divided among reading, search, even split and pictures."""

    context: click.Context
    limit_s: float
    """Infinite: no limit."""
    pictures: Pictures
    compares: bool
    """Whether the plan is compared with an even split."""

    @property
    def spent_s(self) -> float:
        """Part of the limit that is gone before the search begins."""
        return min(seconds_since_start(self.context), max(0.0, self.limit_s - LEAST_SEARCH_S))

    @property
    def spent_of_waves_s(self) -> float:
        """The same for virtual workers, whose pictures show a few waves whatever the plan."""
        return self.spent_s + self.pictures.wave_seconds()

    def answer_s(self, plan: Plan) -> float:
        """Part of the limit to keep for everything after the search."""
        even_s = min(EVEN_SHARE * self.limit_s, EVEN_RESERVE_S) if self.compares else 0.0
        return even_s + self.pictures.seconds(plan)

    def even_split_s(self, plan: Plan) -> float:
        """Time for the even split; not positive if none is left."""
        return min(self.left_s(plan), EVEN_TIME_LIMIT_S)

    def left_s(self, plan: Plan) -> float:
        """What is left of the limit beside the pictures; not positive if nothing is."""
        return self.limit_s - seconds_since_start(self.context) - self.pictures.seconds(plan)
