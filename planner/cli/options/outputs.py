"""Files that commands write, and the options that name them."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from stagecut.planner.analysis.prediction import Played
from stagecut.planner.analysis.wave_prediction import PlayedWaves
from stagecut.planner.cli.parameters.files import output_option
from stagecut.planner.cli.parameters.groups import option
from stagecut.planner.cli.process.writing import announce, compact_json, write_file
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Plan
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.tree import Document
from stagecut.planner.io.documents.write import check_writable, readable_text
from stagecut.planner.report.gantt import gantt_bytes
from stagecut.planner.report.images import image_format
from stagecut.planner.report.labels import stage_labels
from stagecut.planner.report.perfetto import trace
from stagecut.planner.report.waves.wave_gantt import wave_gantt_bytes
from stagecut.planner.report.waves.wave_perfetto import wave_trace

GANTT = "a Gantt chart"
CHART_S = 1.0
"""Seconds to draw any chart, loading matplotlib included."""
PLAY_TASK_S, TRACE_TASK_S = 1e-5, 5e-5
GANTT_TASK_S = {".png": 1e-4, ".svg": 4e-5}
"""Seconds per forward, backward and transfer, measured with 16,000 to 780,000 of them."""
PAGE_S, PAGE_TASK_S = 0.3, 3e-5
"""The same for a report."""
PAGE_SUFFIXES = (".html", ".htm")


def check_page(path: Path) -> None:
    """Raise a BadInputError unless the name of a report is that of an HTML file."""
    if path.suffix.lower() not in PAGE_SUFFIXES:
        raise BadInputError(f"{path}: a report must be a .html file, got suffix {path.suffix!r}")


def page_seconds(plan: Plan) -> float:
    """Estimated seconds to make the report of a plan, which a time limit has to cover."""
    return PAGE_S + 4 * len(plan.stages) * plan.num_microbatches * PAGE_TASK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files to write: every field of a subclass that holds a path."""

    HEADING: ClassVar[str] = "What to write"

    force: bool = option("--force", is_flag=True, help="Overwrite existing files.")

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that were asked for."""
        values = (getattr(self, each.name) for each in fields(self))
        return tuple(value for value in values if isinstance(value, Path))

    def check(self) -> None:
        """Raise an OutputError now if a file could not be written later."""
        for path in self.paths:
            check_writable(path, force=self.force)

    def write(self, path: Path, content: str | bytes) -> None:
        """Write one of the files."""
        write_file(path, content, force=self.force)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedOutputs(Outputs):
    """Files that are announced on stderr as soon as they are written."""

    quiet: bool = option("--quiet", is_flag=True, help="Print nothing but errors to stderr.")

    def write(self, path: Path, content: str | bytes) -> None:
        """Write one of the files and say so."""
        Outputs.write(self, path, content)
        if not self.quiet:
            announce([path])


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementFile(AnnouncedOutputs):
    """The file that a measurement is written to."""

    output: Path = output_option("-o", "--output", required=True, text="Write the measurements to this file.")

    def write_tree(self, tree: Tree, read: Callable[[Document], object]) -> None:
        """Write the tree in a form that `read` accepts."""
        self.write(self.output, readable_text(tree, read, path=self.output))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures(Outputs):
    """Files that show one iteration."""

    trace: Path | None = output_option("--trace", text="Write a trace of one iteration for ui.perfetto.dev.")
    gantt: Path | None = output_option("--gantt", text="Write a Gantt chart (.png or .svg).")

    def check(self) -> None:
        """See :meth:`Outputs.check`."""
        if self.gantt is not None:
            image_format(self.gantt, what=GANTT)
        Outputs.check(self)

    def seconds(self, plan: Plan) -> float:
        """Estimated seconds to simulate and draw a plan, which a time limit has to cover."""
        num_tasks = 4 * len(plan.stages) * plan.num_microbatches
        task_s = PLAY_TASK_S + (TRACE_TASK_S if self.trace is not None else 0.0)
        if self.gantt is None:
            return num_tasks * task_s
        return CHART_S + num_tasks * (task_s + GANTT_TASK_S.get(self.gantt.suffix.lower(), 0.0))

    def wave_seconds(self) -> float:
        """The same for virtual workers: estimated seconds to draw a few waves, whatever the plan."""
        return 0.0 if self.gantt is None else CHART_S

    def draw(self, played: Played) -> None:
        """Draw the pictures that were asked for, and write them."""
        labels, title = stage_labels(played.plan), played.problem.model.name
        if self.trace is not None:
            self.write(self.trace, compact_json(trace(played.timeline, stage_labels=labels)))
        if self.gantt is not None:
            image = image_format(self.gantt, what=GANTT)
            self.write(self.gantt, gantt_bytes(played.timeline, image, stage_labels=labels, title=title))

    def draw_waves(self, played: PlayedWaves) -> None:
        """Draw and write the pictures of virtual workers."""
        if self.trace is not None:
            self.write(self.trace, compact_json(wave_trace(played.timeline)))
        if self.gantt is not None:
            image = image_format(self.gantt, what=GANTT)
            self.write(self.gantt, wave_gantt_bytes(played.timeline, image, title=played.problem.model.name))
