"""The sections of a page, each a heading with charts and tables."""

from collections.abc import Iterator

from stagecut.planner.core.result import Result
from stagecut.planner.core.run_record import RunRecord
from stagecut.planner.core.units import format_seconds
from stagecut.planner.report.explanation import binding_table, what_if_table
from stagecut.planner.report.labels import counted_label, percent_label, plan_label, seconds_label
from stagecut.planner.report.memory_table import memory_tables
from stagecut.planner.report.page.cluster_drawing import cluster_drawing
from stagecut.planner.report.page.contents import Contents
from stagecut.planner.report.page.html_text import chart, folded, html_table, section, text
from stagecut.planner.report.run_tables import behind_label, contamination_label, run_lines, run_stage_tables
from stagecut.planner.report.stage_tables import stage_tables
from stagecut.planner.report.tables import comparison_table, critical_path_table
from stagecut.planner.report.text_table import text_table
from stagecut.planner.report.throughput_lines import throughput_lines
from stagecut.planner.simulator.binding import Binding


def sections(contents: Contents) -> Iterator[tuple[str, str, str]]:
    """Name, title and HTML of every section that there is something for."""
    drawn = {
        ("plan", "Plan"): _plan(contents),
        ("timeline", "One iteration"): _timeline(contents),
        ("memory", "Memory"): _memory(contents),
        ("links", "Links"): _links(contents.binding),
        ("limits", "What limits it"): _limits(contents),
        ("search", "Search"): _search(contents.result),
        ("solvers", "Solvers"): _solvers(contents.compared),
        ("run", "Measured"): () if contents.run is None else _run(contents.run),
    }
    for (name, title), parts in drawn.items():
        if inside := list(parts):
            yield name, title, section(name, title, inside)


def numbers(contents: Contents) -> list[tuple[str, str]]:
    """The numbers of one iteration, by name."""
    played, result = contents.played, contents.result
    even_s = contents.even_split_s
    even = (
        [] if even_s is None else [("even split", format_seconds(even_s) if even_s < float("inf") else "does not fit")]
    )
    return [
        ("iteration time", seconds_label(played.timeline.iteration_s)),
        ("lower bound", seconds_label(result.bound_s)),
        ("gap", percent_label(result.gap)),
        ("bubbles", percent_label(played.timeline.bubble_fraction)),
        *throughput_lines(played.throughput, num_devices=played.problem.cluster.num_devices),
        *even,
    ]


def _plan(contents: Contents) -> Iterator[str]:
    played = contents.played
    yield f"<p>{text(plan_label(played.plan, zero1=played.problem.job.zero1))}.</p>"
    yield cluster_drawing(played.problem.cluster, played.plan)
    stages = stage_tables(played.problem, played.plan, costs=played.costs, timeline=played.timeline)[0]
    yield folded("All stages", html_table(stages, caption="Stages of a pipeline"))


def _timeline(contents: Contents) -> Iterator[str]:
    timeline = contents.played.timeline
    several = len(contents.played.plan.pipelines)
    if several > 1:
        yield f'<p class="note">The first of {several} pipelines; the others do the same on other devices.</p>'
    yield GANTT.format(seconds=format_seconds(timeline.iteration_s))
    table = critical_path_table(timeline)
    yield folded("The critical path", html_table(table, caption="What takes up the time on the critical path"))


GANTT = """<div class="tools" role="toolbar" aria-label="Zoom of the timeline">
<button type="button" id="zoom-in">Zoom in</button>
<button type="button" id="zoom-out">Zoom out</button>
<button type="button" id="earlier" aria-label="Earlier">&larr;</button>
<button type="button" id="later" aria-label="Later">&rarr;</button>
<button type="button" id="whole">Whole iteration</button>
</div>
<ul class="legend" id="gantt-legend"></ul>
<div class="chart" id="gantt-chart" role="application" tabindex="0" aria-describedby="gantt-keys"
 aria-label="Timeline of one iteration of {seconds}, a row for each device group"></div>
<p class="readout" id="gantt-readout" aria-live="polite">Point at a bar to read its times.</p>
<p class="note" id="gantt-keys">Keys in the chart: arrows go from bar to bar and from row to row, + and - zoom,
0 shows the whole iteration. With Ctrl, the mouse wheel zooms; dragging moves.</p>"""


def _memory(contents: Contents) -> Iterator[str]:
    played = contents.played
    yield chart("parts", "Memory of each device group by part, against its limit: the table below has the numbers")
    yield '<p class="tools"><label for="lane">Memory over the iteration, on each device of stage</label> '
    yield '<select id="lane"></select></p>'
    yield chart("memory", "Memory of the chosen device group over the iteration, against its limit")
    table = memory_tables(played.plan, played.memory, played.costs.limit_bytes.tolist())[0]
    yield folded("All numbers", html_table(table, caption="Memory on each device when it holds the most"))


def _links(binding: Binding) -> Iterator[str]:
    if not binding.links:
        return
    yield chart("links", "Share of the iteration for which each link is in use: the table below has the numbers")
    rows = ((use.name, seconds_label(use.busy_s), percent_label(binding.share(use.busy_s))) for use in binding.links)
    table = text_table(rows, "link", right=("in use", "of the iteration"))
    yield folded(
        f"The {counted_label(len(binding.links), 'link')} in use",
        html_table(table, caption="Links in use, the busiest first"),
    )


def _limits(contents: Contents) -> Iterator[str]:
    table = binding_table(contents.played.plan, contents.binding)
    yield html_table(table, caption="Where each resource comes closest to its limit")
    if contents.what_if:
        yield html_table(what_if_table(contents.what_if), caption="What one more unit of each resource would bring")


def _search(result: Result) -> Iterator[str]:
    if result.history:
        yield chart("search", "Best time and lower bound over the seconds of the search: the table has the numbers")
        rows = (
            (seconds_label(point.seconds), seconds_label(point.objective_s), seconds_label(point.bound_s))
            for point in result.history
        )
        table = text_table(rows, right=("after", "best time", "lower bound"))
        yield folded("All steps", html_table(table, caption=f"Steps of the search by {result.solver}"))


def _solvers(compared: tuple[Result, ...]) -> Iterator[str]:
    if compared:
        yield chart("compared", "Time and lower bound of each solver: the table has the numbers")
        yield html_table(comparison_table(compared), caption="Solvers on the same problem")


def _run(run: RunRecord) -> Iterator[str]:
    for warning in (contamination_label(run), behind_label(run)):
        if warning:
            yield f'<p class="warning">{text(warning)}.</p>'
    lines = (("started", run.started), ("on", f"{run.device}, {run.mode} run"), *run_lines(run))
    yield html_table(text_table(lines, "of the run", last=("value",)), caption="The run as a whole")
    yield chart("run", "Seconds of a forward and a backward of each stage, predicted and measured: see the table")
    yield folded("All stages", html_table(run_stage_tables(run)[0], caption="Stages, predicted and measured"))
