"""What a command writes: JSON on stdout, plan files, traces and charts."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from stagecut.planner.cli.options.files import OutputFile
from stagecut.planner.cli.options.groups import Command, option_group
from stagecut.planner.cli.process.cancellable import held
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.result import Result
from stagecut.planner.core.visible import visible
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.write import check_writable, write_bytes
from stagecut.planner.io.files.plan_file import PlanFile, to_tree
from stagecut.planner.report.convergence import convergence_bytes
from stagecut.planner.report.gantt import gantt_bytes
from stagecut.planner.report.images import image_format
from stagecut.planner.report.labels import stage_labels
from stagecut.planner.report.perfetto import trace
from stagecut.planner.simulator.timeline import Timeline

GANTT, CONVERGENCE = "a Gantt chart", "a convergence chart"
CHART_S = 1.0
"""Seconds for any chart, matplotlib loaded."""
PLAY_TASK_S, TRACE_TASK_S = 1e-5, 5e-5
GANTT_TASK_S = {".png": 1e-4, ".svg": 4e-5}
"""Seconds for each forward, backward and transfer, measured with 16,000 to 780,000 of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """Files to draw one iteration into."""

    trace: Path | None
    gantt: Path | None
    force: bool

    def check(self, *others: Path | None, convergence: Path | None = None) -> None:
        """Complain now of what could not be written later.

        Parameters
        ----------
        others
            Further files that the command is to write.
        convergence
            A chart of the search that it is to write.

        Raises
        ------
        BadInputError
            If a file cannot be written.
        """
        if self.gantt is not None:
            image_format(self.gantt, what=GANTT)
        if convergence is not None:
            image_format(convergence, what=CONVERGENCE)
        for path in (*others, self.trace, self.gantt, convergence):
            if path is not None:
                check_writable(path, force=self.force)

    def seconds(self, plan: Plan) -> float:
        """About how long it takes to play a plan and to draw it, for a time limit to be kept."""
        num_tasks = 4 * len(plan.stages) * plan.num_microbatches
        chart = GANTT_TASK_S.get(self.gantt.suffix.lower(), 0.0) if self.gantt is not None else 0.0
        first = CHART_S if self.gantt is not None else 0.0
        return first + num_tasks * (PLAY_TASK_S + chart + (TRACE_TASK_S if self.trace is not None else 0.0))

    def write(self, plan: Plan, timeline: Timeline, *, title: str) -> tuple[Path, ...]:
        """Draw the iteration; return the files written."""
        labels = stage_labels(plan)
        if self.trace is not None:
            text = json.dumps(trace(timeline, stage_labels=labels), separators=(",", ":"), allow_nan=False)
            write_file(self.trace, text + "\n", force=self.force)
        if self.gantt is not None:
            chart = gantt_bytes(timeline, image_format(self.gantt, what=GANTT), stage_labels=labels, title=title)
            write_file(self.gantt, chart, force=self.force)
        return tuple(path for path in (self.trace, self.gantt) if path is not None)


def picture_options(command: Command) -> Command:
    """Give a command --trace, --gantt and --force, as its argument `pictures`."""
    path = OutputFile()
    options = (
        click.option("--trace", type=path, metavar="FILE", help="Write a trace of one iteration for ui.perfetto.dev."),
        click.option("--gantt", type=path, metavar="FILE", help="Write a Gantt chart as .png or .svg."),
        click.option("--force", is_flag=True, help="Overwrite files that exist."),
    )
    return option_group(command, options, argument="pictures", build=Pictures)


def write_plan_file(path: Path, content: PlanFile, *, force: bool) -> None:
    """Write a plan file: nothing in it depends on the clock."""
    write_file(path, format_json(to_tree(content)), force=force)


def write_convergence(path: Path, result: Result, *, title: str, force: bool) -> None:
    """Write the chart of a search."""
    chart = convergence_bytes(result, image_format(path, what=CONVERGENCE), title=title)
    write_file(path, chart, force=force)


def write_file(path: Path, content: str | bytes, *, force: bool) -> None:
    """Write a file whole, whatever signals come meanwhile; see :func:`planner.io.documents.write.write_bytes`."""
    with held():
        write_bytes(path, content.encode() if isinstance(content, str) else content, force=force)


def announce(paths: Sequence[Path]) -> None:
    """Say on stderr what was written."""
    for path in paths:
        click.echo(f"wrote {visible(path)}", err=True)


def print_json(tree: Mapping[str, object]) -> None:
    """Print one JSON object; what is unknown or unlimited becomes null, as JSON has no other numbers."""
    print_text(json.dumps(_finite(tree), indent=2, sort_keys=True, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Print an answer that is of no use in parts, whole whatever signals come meanwhile."""
    with held():
        click.echo(text, nl=False)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
