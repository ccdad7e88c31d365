"""Gantt chart of virtual workers: a row for each stage of each worker, from the start of training."""

from typing import TYPE_CHECKING

import numpy as np

from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.report.gantt import (
    BAR,
    BUBBLE_COLOUR,
    MARGIN_IN,
    ROW_IN,
    STYLES,
    WIDTH_IN,
    Style,
    draw_boxes,
    write_numbers,
)
from stagecut.planner.report.images import ImageFormat, encoded, label_times, reproducible
from stagecut.planner.report.labels import count_label
from stagecut.planner.report.waves.wave_labels import wave_stage_labels
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.timeline import WaveTimeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WAVE_STYLES = {
    WaveKind.FORWARD: STYLES[TaskKind.FORWARD],
    WaveKind.BACKWARD: STYLES[TaskKind.BACKWARD],
    WaveKind.UPDATE: Style(name="local step", colour=STYLES[TaskKind.UPDATE].colour),
}


def wave_gantt_bytes(timeline: WaveTimeline, image: ImageFormat, *, title: str = "") -> bytes:
    """The chart of :func:`draw_wave_gantt` as a file; the same bytes for the same timeline."""
    with reproducible():
        figure, _ = draw_wave_gantt(timeline, title=title)
        return encoded(figure, image)


def draw_wave_gantt(timeline: WaveTimeline, *, title: str = "") -> tuple["Figure", "Axes"]:
    """Draw forwards solid, backwards hatched, waits grey, and the end of each wave of a worker as a line.

    The title precedes the throughput in the long run.
    """
    from matplotlib.figure import Figure

    rows = _rows(timeline)
    compute_end_s = max(span.end_s for span in timeline.spans if span.kind in WAVE_STYLES)
    figure = Figure(figsize=(WIDTH_IN, MARGIN_IN + ROW_IN * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    _label_axes(axes, timeline, end_s=compute_end_s)
    axes.barh(range(len(rows)), compute_end_s, height=BAR, color=BUBBLE_COLOUR, label="waits", zorder=1)
    for kind, style in WAVE_STYLES.items():
        left_s, right_s, row, _ = _boxes(timeline, rows, {kind})
        draw_boxes(axes, left_s, right_s, row=row, end_s=compute_end_s, style=style)
    _mark_waves(axes, timeline, rows)
    head = f"{visible(title)}: " if title else ""
    axes.set_title(f"{head}{count_label(timeline.samples_per_s)} samples/s in the long run", loc="left")
    figure.legend(loc="outside lower center", ncols=2 + len(WAVE_STYLES), frameon=False)
    figure.draw_without_rendering()
    left_s, right_s, row, number = _boxes(timeline, rows, {WaveKind.FORWARD, WaveKind.BACKWARD})
    write_numbers(axes, left_s, right_s, row=row, number=number, end_s=compute_end_s)
    return figure, axes


def _rows(timeline: WaveTimeline) -> dict[tuple[int, int], int]:
    """The row of each (worker, stage)."""
    workers = enumerate(timeline.costs.plan.workers)
    stages = [(number, stage) for number, worker in workers for stage in range(worker.num_stages)]
    return {stage: row for row, stage in enumerate(stages)}


def _label_axes(axes: "Axes", timeline: WaveTimeline, *, end_s: float) -> None:
    """Set up both axes: the first stage of the first worker is at the top."""
    labels = [
        f"worker {number}, stage {visible(label)}"
        for number, own in enumerate(wave_stage_labels(timeline.costs.plan))
        for label in own
    ]
    axes.set_xlim(0, end_s or 1.0)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    label_times(axes.xaxis, end_s, name="time", digits=4)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "left", "right"]].set_visible(False)


def _boxes(
    timeline: WaveTimeline, rows: dict[tuple[int, int], int], kinds: set[WaveKind]
) -> tuple[Floats, Floats, Ints, Ints]:
    """Start, end, row and minibatch of all spans of some kinds."""
    spans = [span for span in timeline.spans if span.kind in kinds and span.end_s > span.start_s]
    return (
        np.array([span.start_s for span in spans]),
        np.array([span.end_s for span in spans]),
        np.array([rows[span.worker, span.stage] for span in spans], dtype=np.int64),
        np.array([span.number for span in spans], dtype=np.int64),
    )


def _mark_waves(axes: "Axes", timeline: WaveTimeline, rows: dict[tuple[int, int], int]) -> None:
    """A dark line across the rows of a worker where each of its waves ends."""
    from matplotlib.collections import LineCollection

    segments = []
    for number, ends_s in enumerate(timeline.wave_ends_s):
        own = [row for (worker, _), row in rows.items() if worker == number]
        segments += [[(end_s, own[0] - 0.5), (end_s, own[-1] + 0.5)] for end_s in ends_s]
    line = LineCollection(segments, colors="black", linewidths=1.0, label="end of a wave", zorder=3)
    axes.add_collection(line, autolim=False)
