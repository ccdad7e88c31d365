"""Numbers that the charts of the page about a plan draw, as plain values."""

from collections.abc import Iterator

import numpy as np

from stagecut.planner.core.result import Result
from stagecut.planner.core.run_record import RunRecord
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.report.gantt import STYLES
from stagecut.planner.report.labels import lane_labels, stage_labels
from stagecut.planner.report.page.bars import SECONDS, Series, bars, known, memory_bars, search_data, share_bars
from stagecut.planner.report.page.contents import Contents
from stagecut.planner.report.page.timeline_data import Data, Lane, steps_in_ticks, timeline_data
from stagecut.planner.simulator.binding import Binding
from stagecut.planner.simulator.timeline import MemoryCurve, Timeline

KINDS = tuple(STYLES)
MOST_LINKS = 16
"""Links drawn; the table has all."""


def chart_data(contents: Contents) -> Data:
    """Everything that is drawn, by the name of the chart."""
    played, timeline, run = contents.played, contents.played.timeline, contents.run
    lanes = list(_lanes(timeline, lane_labels(timeline, stage_labels(played.plan))))
    names = [lane.label for lane in lanes], [lane.short for lane in lanes]
    limits_bytes = known(played.costs.limit_bytes[: len(lanes)].tolist())
    return {
        **timeline_data(lanes, tuple(STYLES.values()), total_s=timeline.iteration_s),
        "words": {"row": "Stage", "unit": "sample", "idle": "bubble"},
        "memory": [_curve(curve, timeline.iteration_s) for curve in timeline.memory],
        "limits_bytes": limits_bytes,
        "fullest": contents.binding.fullest,
        "search": _search(contents.result),
        "bars": {
            "parts": memory_bars(*names, played.memory[: len(lanes)], limits_bytes),
            "links": _links(contents.binding),
            "compared": _compared(contents.compared),
            "run": None if run is None else _run(run),
        },
    }


def _lanes(timeline: Timeline, labels: list[str]) -> Iterator[Lane]:
    """A row for each device group."""
    critical = np.isin(np.arange(len(timeline.kind)), timeline.critical_path).astype(int)
    for group, label in enumerate(labels):
        tasks = np.flatnonzero(np.isin(timeline.kind, KINDS) & (timeline.device[timeline.stage] == group))
        yield Lane(
            label=label,
            short=", ".join(str(stage) for stage in np.flatnonzero(timeline.device == group)),
            start_s=timeline.start_s[tasks],
            end_s=timeline.end_s[tasks],
            kind=np.array([KINDS.index(TaskKind(kind)) for kind in timeline.kind[tasks].tolist()], dtype=np.int64),
            stage=timeline.stage[tasks],
            first=timeline.lo[tasks],
            samples=(timeline.hi - timeline.lo)[tasks],
            critical=critical[tasks],
        )


def _curve(curve: MemoryCurve, iteration_s: float) -> Data:
    """A step function: steps of time in ticks, and for each the number of its level."""
    levels, level = np.unique(curve.memory_bytes, return_inverse=True)
    return {"step": steps_in_ticks(curve.time_s, iteration_s), "levels": levels.tolist(), "level": level.tolist()}


def _links(binding: Binding) -> Data:
    links = binding.links[:MOST_LINKS]
    shares = [binding.share(link.busy_s) for link in links]
    return share_bars([link.name for link in links], shares, axis="of the iteration")


def _search(result: Result) -> Data:
    points = [(point.seconds, point.objective_s, point.bound_s) for point in result.history]
    end = result.seconds, result.objective_s, result.bound_s
    return search_data([*points, end], best="best time", bound="lower bound", unit=SECONDS)


def _compared(compared: tuple[Result, ...]) -> Data:
    found = [result for result in compared if result.objective_s is not None]
    return bars(
        [result.solver for result in found],
        Series(name="time", values=[result.objective_s for result in found], colour="orange"),
        unit=SECONDS,
        axis="of an iteration",
        marks=Series(name="lower bound", values=[result.bound_s for result in found]),
    )


def _run(run: RunRecord) -> Data:
    stages = run.stages
    predicted, measured = ([getattr(stage, name) for stage in stages] for name in ("predicted", "measured"))
    return bars(
        [f"stage {index}" for index in range(len(stages))],
        Series(name="forward predicted", values=[each.forward_s for each in predicted], colour="blue"),
        Series(name="forward measured", values=[each.forward_s for each in measured], colour="deep"),
        Series(
            name="backward predicted", values=[each.backward_s for each in predicted], colour="orange", hatched=True
        ),
        Series(name="backward measured", values=[each.backward_s for each in measured], colour="red", hatched=True),
        unit=SECONDS,
        axis="of one micro-batch",
    )
