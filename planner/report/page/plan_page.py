"""The page about a plan: its numbers and sections."""

from collections.abc import Iterator

from stagecut.planner.core.result import Result
from stagecut.planner.core.run_record import RunRecord
from stagecut.planner.core.units import format_seconds
from stagecut.planner.cost.time_basis import time_basis
from stagecut.planner.report.explanation import binding_table, what_if_table
from stagecut.planner.report.labels import percent_label, plan_label, seconds_label
from stagecut.planner.report.memory_table import memory_tables
from stagecut.planner.report.page.chart_data import chart_data
from stagecut.planner.report.page.cluster_drawing import cluster_drawing
from stagecut.planner.report.page.contents import Contents
from stagecut.planner.report.page.html_text import chart, folded, html_table, note, text, timeline_chart, warning
from stagecut.planner.report.page.page import Page, Section
from stagecut.planner.report.page.shared_parts import chart_and_table, link_parts, search_parts
from stagecut.planner.report.run_tables import behind_label, contamination_label, run_lines, run_stage_tables
from stagecut.planner.report.stage_tables import stage_tables
from stagecut.planner.report.tables import comparison_table, critical_path_table
from stagecut.planner.report.text_table import text_table
from stagecut.planner.report.throughput_lines import throughput_lines
from stagecut.planner.report.verdict import verdict
from stagecut.planner.simulator.binding import Binding


def plan_page(contents: Contents) -> Page:
    """All that is known about a plan."""
    problem, result = contents.played.problem, contents.result
    return Page(
        problem=problem,
        verdict=verdict(result, even_split_s=contents.even_split_s, basis=time_basis(problem)),
        numbers=_numbers(contents),
        sections=(
            Section(name="plan", title="Plan", parts=_plan(contents)),
            Section(name="timeline", title="One iteration", parts=_timeline(contents)),
            Section(name="memory", title="Memory", parts=_memory(contents)),
            Section(name="links", title="Links", parts=_links(contents.binding)),
            Section(name="limits", title="What limits it", parts=_limits(contents)),
            Section(name="search", title="Search", parts=_search(result)),
            Section(name="solvers", title="Solvers", parts=_solvers(contents.compared)),
            Section(name="run", title="Measured", parts=() if contents.run is None else _run(contents.run)),
        ),
        data=chart_data(contents),
        solver=result.solver,
        provenance=contents.provenance,
    )


def _numbers(contents: Contents) -> list[tuple[str, str]]:
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
    yield cluster_drawing(played.problem.cluster, played.plan.pipelines, chunks=played.plan.chunks)
    stages = stage_tables(played.problem, played.plan, costs=played.costs, timeline=played.timeline)[0]
    yield folded("All stages", html_table(stages, caption="Stages of a pipeline"))


def _timeline(contents: Contents) -> Iterator[str]:
    timeline = contents.played.timeline
    several = len(contents.played.plan.pipelines)
    if several > 1:
        yield note(f"The first of {several} pipelines; the others do the same on other devices.")
    seconds = format_seconds(timeline.iteration_s)
    yield timeline_chart(f"Timeline of one iteration of {seconds}, a row for each device group")
    table = critical_path_table(timeline)
    yield folded("The critical path", html_table(table, caption="What takes up the time on the critical path"))


def _memory(contents: Contents) -> Iterator[str]:
    played = contents.played
    yield chart("parts", "Memory of each device group by part, against its limit: the table below has the numbers")
    yield '<p class="tools"><label for="lane">Memory over the iteration, on each device of stage</label> '
    yield '<select id="lane"></select></p>'
    yield chart("memory", "Memory of the chosen device group over the iteration, against its limit")
    table = memory_tables(played.plan.stages, played.memory, played.costs.limit_bytes.tolist())[0]
    yield folded("All numbers", html_table(table, caption="Memory on each device when it holds the most"))


def _links(binding: Binding) -> Iterator[str]:
    columns, caption = ("in use", "of the iteration"), "Links in use, the busiest first"
    return link_parts(binding.links, binding.iteration_s, columns=columns, caption=caption)


def _limits(contents: Contents) -> Iterator[str]:
    table = binding_table(contents.played.plan, contents.binding)
    yield html_table(table, caption="Where each resource comes closest to its limit")
    if contents.what_if:
        yield html_table(what_if_table(contents.what_if), caption="What one more unit of each resource would bring")


def _search(result: Result) -> Iterator[str]:
    steps = (
        (seconds_label(point.seconds), seconds_label(point.objective_s), seconds_label(point.bound_s))
        for point in result.history
    )
    return search_parts(result.solver, steps, best="best time", bound="lower bound")


def _solvers(compared: tuple[Result, ...]) -> Iterator[str]:
    if compared:
        yield chart("compared", "Time and lower bound of each solver: the table has the numbers")
        yield html_table(comparison_table(compared), caption="Solvers on the same problem")


def _run(run: RunRecord) -> Iterator[str]:
    for words in (contamination_label(run), behind_label(run)):
        if words:
            yield warning(words)
    lines = (("started", run.started), ("on", f"{run.device}, {run.mode} run"), *run_lines(run))
    yield html_table(text_table(lines, "of the run", last=("value",)), caption="The run as a whole")
    label, caption = "Seconds of a forward and a backward of each stage", "Stages, predicted and measured"
    yield from chart_and_table("run", label, run_stage_tables(run)[0], summary="All stages", caption=caption)
