"""The page about virtual workers: its sections."""

from collections.abc import Iterator

from stagecut.planner.core.units import format_seconds
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.core.virtual_workers.wave_run_record import WaveRunRecord
from stagecut.planner.cost.time_basis import time_basis
from stagecut.planner.report.labels import counted_label, seconds_label
from stagecut.planner.report.memory_table import memory_tables
from stagecut.planner.report.page.cluster_drawing import cluster_drawing
from stagecut.planner.report.page.html_text import chart, folded, html_table, note, text, timeline_chart, warning
from stagecut.planner.report.page.page import Page, Section
from stagecut.planner.report.page.shared_parts import chart_and_table, link_parts, search_parts
from stagecut.planner.report.text_table import text_table
from stagecut.planner.report.waves.wave_chart_data import wave_chart_data
from stagecut.planner.report.waves.wave_comparison import wave_comparison_table, wave_what_if_table
from stagecut.planner.report.waves.wave_contents import WaveContents
from stagecut.planner.report.waves.wave_labels import kind_label, stage_names, wave_plan_label, worker_kinds
from stagecut.planner.report.waves.wave_numbers import wave_numbers
from stagecut.planner.report.waves.wave_run_table import HEADING, drop_labels, wave_run_lines, wave_run_table
from stagecut.planner.report.waves.wave_tables import all_reduce_table, server_table, wait_table, wave_stage_tables
from stagecut.planner.report.waves.wave_verdict import rate_label, wave_verdict
from stagecut.planner.simulator.waves.link_use import links_per_wave
from stagecut.planner.simulator.waves.timeline import WaveTimeline


def wave_page(contents: WaveContents) -> Page:
    """All that is known about a plan of virtual workers."""
    played, result = contents.played, contents.result
    timeline, problem = played.timeline, played.problem
    first = f"The first {timeline.num_waves} waves"
    return Page(
        problem=problem,
        verdict=wave_verdict(result, basis=time_basis(problem)),
        numbers=wave_numbers(played, result),
        sections=(
            Section(name="plan", title="Plan", parts=_plan(contents)),
            Section(name="timeline", title=first, parts=_timeline(contents)),
            Section(name="memory", title="Memory", parts=_memory(contents)),
            Section(name="links", title="Links", parts=_links(timeline)),
            Section(name="limits", title="What limits it", parts=_limits(contents)),
            Section(name="search", title="Search", parts=_search(result)),
            Section(name="solvers", title="Allocations", parts=_allocations(contents.compared)),
            Section(name="run", title="Measured", parts=() if contents.run is None else _run(contents.run)),
        ),
        data=wave_chart_data(contents),
        solver=result.solver,
        provenance=contents.provenance,
    )


def _plan(contents: WaveContents) -> Iterator[str]:
    played = contents.played
    yield f"<p>{text(wave_plan_label(played.plan))}.</p>"
    yield cluster_drawing(played.problem.cluster, played.plan.workers, word="virtual worker")
    stages = wave_stage_tables(played.problem, played.timeline)[0]
    yield folded("All stages", html_table(stages, caption="Stages of each kind of worker"))


def _timeline(contents: WaveContents) -> Iterator[str]:
    timeline, plan = contents.played.timeline, contents.played.plan
    yield note(f"From the start of training. In the long run a wave takes {format_seconds(timeline.steady.wave_s)}.")
    if not timeline.steady.is_exact:
        yield note("The waves played never repeat exactly: the throughput is that of the second half of them.")
    if (shown := len(contents.shown_workers)) < len(plan.workers):
        yield note(f"Shown are {shown} of {len(plan.workers)} workers, at first those that are unlike each other.")
    yield timeline_chart("Timeline of the first waves, a row for each stage of each worker")


def _memory(contents: WaveContents) -> Iterator[str]:
    played, first = contents.played, contents.first_workers
    kinds = worker_kinds(played.costs)
    if len(kinds) < len(played.plan.workers):
        alike = "; ".join(kind_label(kind) for kind in kinds if len(kind) > 1)
        yield note(f"Of workers that are alike, only the first is shown: {alike}.")
    table, _ = memory_tables(
        [stage for number in first for stage in played.plan.workers[number].stages],
        [parts for number in first for parts in played.memory(number)],
        [limit for number in first for limit in played.costs.workers[number].limit_bytes.tolist()],
        names=[name for number in first for name in stage_names(played.plan)[number]],
    )
    label, caption = "Memory of each stage's device by part", "Memory on each device when it holds the most"
    yield from chart_and_table("parts", label, table, summary="All numbers", caption=caption)


def _links(timeline: WaveTimeline) -> Iterator[str]:
    costs, steady = timeline.costs, timeline.steady
    columns, caption = ("in use per wave", "of the time"), "Links in use in the long run, the busiest first"
    yield from link_parts(links_per_wave(costs, steady), steady.wave_s, columns=columns, caption=caption)
    if any(each for own in costs.workers for each in own.exchanges):
        servers = html_table(server_table(costs), caption="Layers that each server owns, and its traffic once a wave")
        yield folded(counted_label(len(set(costs.plan.owners)), "parameter server"), servers)
    if costs.all_reduces:
        yield folded("All-reduces", html_table(all_reduce_table(costs), caption="All-reduces of a wave"))


def _limits(contents: WaveContents) -> Iterator[str]:
    label, caption = "How long stages of each worker compute and wait", "Shares of the stages' time, in the long run"
    table = wait_table(contents.played.timeline)
    yield from chart_and_table("waits", label, table, summary="All workers", caption=caption)
    if contents.what_if:
        table = wave_what_if_table(contents.what_if)
        yield html_table(table, caption="What one more unit of each resource would bring")


def _search(result: WaveResult) -> Iterator[str]:
    steps = (
        (seconds_label(point.seconds), rate_label(point.samples_per_s), rate_label(point.bound_samples_per_s))
        for point in result.history
    )
    return search_parts(result.solver, steps, best="best throughput", bound="upper bound")


def _allocations(compared: tuple[WaveResult, ...]) -> Iterator[str]:
    if compared:
        yield chart("compared", "Throughput and bound of each allocation: the table has the numbers")
        yield html_table(wave_comparison_table(compared), caption="Allocations of the same devices")


def _run(run: WaveRunRecord) -> Iterator[str]:
    yield from map(warning, drop_labels(run))
    lines = text_table(wave_run_lines(run), "of the run", last=("value",))
    yield html_table(lines, caption="The run as a whole")
    label, caption = "Samples per second of each worker", " ".join(HEADING.split())
    yield from chart_and_table("run", label, wave_run_table(run), summary="All workers", caption=caption)
