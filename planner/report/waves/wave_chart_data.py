"""Numbers that the charts of the page about virtual workers draw, as plain values."""

from collections.abc import Iterator

import numpy as np

from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.core.virtual_workers.wave_run_record import WaveRunRecord
from stagecut.planner.report.page.bars import RATE, SHARE, Series, bars, memory_bars, search_data, share_bars
from stagecut.planner.report.page.chart_data import MOST_LINKS
from stagecut.planner.report.page.timeline_data import Data, Lane, timeline_data
from stagecut.planner.report.waves.wave_contents import WaveContents
from stagecut.planner.report.waves.wave_gantt import WAVE_STYLES
from stagecut.planner.report.waves.wave_labels import named_stage_labels, stage_names
from stagecut.planner.report.waves.wave_tables import WAITS, wait_shares
from stagecut.planner.simulator.waves.link_use import links_per_wave
from stagecut.planner.simulator.waves.timeline import WaveTimeline

KINDS = tuple(WAVE_STYLES)
WAIT_COLOURS = ("blue", "red", "orange", "pink")
"""Of :data:`WAITS`, one by one."""


def wave_chart_data(contents: WaveContents) -> Data:
    """Everything that is drawn, by the name of the chart."""
    timeline, run = contents.played.timeline, contents.run
    total_s = max(span.end_s for span in timeline.spans if span.kind in KINDS)
    return {
        **timeline_data(list(_lanes(contents)), tuple(WAVE_STYLES.values()), total_s=total_s),
        "words": {"row": "Stage", "unit": "minibatch", "idle": "wait"},
        "search": _search(contents.result),
        "bars": {
            "parts": _memory(contents),
            "waits": _waits(timeline, contents.shown_workers),
            "links": _links(timeline),
            "compared": _compared(contents.compared),
            "run": None if run is None else _run(run),
        },
    }


def _lanes(contents: WaveContents) -> Iterator[Lane]:
    """A row for each stage of the workers that are drawn."""
    timeline, plan = contents.played.timeline, contents.played.plan
    labels, names = named_stage_labels(plan), stage_names(plan)
    spans = [span for span in timeline.spans if span.kind in KINDS]
    place = np.array([(span.worker, span.stage) for span in spans])
    start_s, end_s = np.array([span.start_s for span in spans]), np.array([span.end_s for span in spans])
    kind = np.array([KINDS.index(span.kind) for span in spans])
    number = np.array([span.number for span in spans])
    for worker in contents.shown_workers:
        for stage, (label, short) in enumerate(zip(labels[worker], names[worker], strict=True)):
            own = np.flatnonzero((place == (worker, stage)).all(axis=1))
            yield Lane(
                label=label,
                short=short,
                start_s=start_s[own],
                end_s=end_s[own],
                kind=kind[own],
                stage=np.full(len(own), stage),
                first=number[own],
                samples=np.ones(len(own), dtype=np.int64),
                critical=np.zeros(len(own), dtype=np.int64),
                ends_s=timeline.wave_ends_s[worker],
            )


def _memory(contents: WaveContents) -> Data:
    """Of the first worker of each kind."""
    played, first = contents.played, contents.first_workers
    labels, names = named_stage_labels(played.plan), stage_names(played.plan)
    return memory_bars(
        [label for number in first for label in labels[number]],
        [name for number in first for name in names[number]],
        [parts for number in first for parts in played.memory(number)],
        [limit for number in first for limit in played.costs.workers[number].limit_bytes.tolist()],
    )


def _waits(timeline: WaveTimeline, shown: list[int]) -> Data:
    shares = [wait_shares(timeline, number) for number in shown]
    series = (
        Series(name=name, values=values, colour=colour, hatched=colour == "orange")
        for name, values, colour in zip(WAITS, zip(*shares, strict=True), WAIT_COLOURS, strict=True)
    )
    names, short = [f"worker {number}" for number in shown], [str(number) for number in shown]
    axis = "of the time of its stages, in the long run"
    return bars(names, *series, unit=SHARE, axis=axis, short_names=short, stacked=True, maximum=1)


def _links(timeline: WaveTimeline) -> Data:
    links = links_per_wave(timeline.costs, timeline.steady)[:MOST_LINKS]
    shares = [link.busy_s / timeline.steady.wave_s for link in links]
    return share_bars([link.name for link in links], shares, axis="of the time, in the long run")


def _search(result: WaveResult) -> Data:
    points = [(point.seconds, point.samples_per_s, point.bound_samples_per_s) for point in result.history]
    end = result.seconds, result.samples_per_s, result.bound_samples_per_s
    return search_data([*points, end], best="best throughput", bound="upper bound", unit=RATE)


def _compared(compared: tuple[WaveResult, ...]) -> Data:
    found = [result for result in compared if result.samples_per_s is not None]
    return bars(
        [result.solver for result in found],
        Series(name="throughput", values=[result.samples_per_s for result in found], colour="orange"),
        unit=RATE,
        axis="in the long run",
        marks=Series(name="upper bound", values=[result.bound_samples_per_s for result in found]),
    )


def _run(run: WaveRunRecord) -> Data:
    return bars(
        [f"worker {number}" for number in range(len(run.workers))],
        Series(name="predicted", values=[each.predicted_samples_per_s for each in run.workers], colour="blue"),
        Series(name="measured", values=[each.measured_samples_per_s for each in run.workers], colour="deep"),
        unit=RATE,
        axis="of each worker",
    )
