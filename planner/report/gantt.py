"""Gantt chart of one iteration: a row per device group, from the first forward to the last optimizer step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.units import format_seconds
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.report.images import ImageFormat, encoded, label_times, reproducible
from stagecut.planner.report.labels import lane_labels, percent_label
from stagecut.planner.simulator.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, ROW_IN, MARGIN_IN = 14.0, 0.4, 1.4
BAR = 0.8
"""Height of a bar; a row is 1 high."""
FONT_PT, DIGIT_PT = 6.5, 4.2
"""Numbers in boxes, and the width of one digit."""
EDGE_PT = 2.0
"""Narrower boxes get no outline: it would cover them."""
EDGE_WIDTH_PT = 0.6
MOST_BOXES = 2000
"""Most boxes of one kind that are drawn one by one: each draws its hatch anew, which adds up to seconds."""
BUBBLE_COLOUR = "#DDDDDD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one kind of span is drawn."""

    name: str
    colour: str
    hatch: str | None = None


STYLES = {
    TaskKind.FORWARD: Style(name="forward", colour="#56B4E9"),
    TaskKind.BACKWARD: Style(name="backward", colour="#E69F00", hatch="//////"),
    TaskKind.SYNC: Style(name="gradient synchronisation", colour="#CC79A7", hatch="xxxx"),
    TaskKind.UPDATE: Style(name="optimizer step", colour="#009E73"),
}
"""Colours of Okabe and Ito (jfly.uni-koeln.de/color), distinguishable under every kind of colour vision."""


def gantt_bytes(timeline: Timeline, image: ImageFormat, *, stage_labels: Sequence[str] = (), title: str = "") -> bytes:
    """The chart of :func:`draw_gantt` as a file; the same bytes for the same timeline."""
    with reproducible():
        figure, _ = draw_gantt(timeline, stage_labels=stage_labels, title=title)
        return encoded(figure, image)


def draw_gantt(timeline: Timeline, *, stage_labels: Sequence[str] = (), title: str = "") -> tuple["Figure", "Axes"]:
    """Draw forwards solid, backwards hatched, bubbles grey; time runs in seconds.

    Stages are labelled with their numbers unless labels are given. The title precedes the iteration time and the
    share of bubbles.
    """
    from matplotlib.figure import Figure

    num_rows = timeline.num_devices
    figure = Figure(figsize=(WIDTH_IN, MARGIN_IN + ROW_IN * num_rows), layout="constrained")
    axes = figure.add_subplot()
    _label_axes(axes, timeline, stage_labels)
    axes.barh(range(num_rows), timeline.iteration_s, height=BAR, color=BUBBLE_COLOUR, label="bubble", zorder=1)
    for kind, style in STYLES.items():
        _draw_spans(axes, timeline, kind=kind, style=style)
    _underline_critical_path(axes, timeline)
    head = f"{visible(title)}: " if title else ""
    share = percent_label(timeline.bubble_fraction)
    axes.set_title(f"{head}{format_seconds(timeline.iteration_s)} per iteration, bubbles {share}", loc="left")
    figure.legend(loc="outside lower center", ncols=2 + len(STYLES), frameon=False)
    figure.draw_without_rendering()
    _number_boxes(axes, timeline)
    return figure, axes


def _label_axes(axes: "Axes", timeline: Timeline, stage_labels: Sequence[str]) -> None:
    """Set up both axes: x ends at the iteration time, the first stage is at the top."""
    num_rows = timeline.num_devices
    axes.set_xlim(0, timeline.iteration_s or 1.0)
    axes.set_ylim(num_rows - 0.5, -0.5)
    axes.set_yticks(range(num_rows), lane_labels(timeline, stage_labels), fontsize=8)
    label_times(axes.xaxis, timeline.iteration_s, name="time", digits=4)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "left", "right"]].set_visible(False)


def _draw_spans(axes: "Axes", timeline: Timeline, *, kind: TaskKind, style: Style) -> None:
    """All spans of one kind as one collection of rectangles."""
    chosen = _shown(timeline, kind)
    times_s = timeline.start_s[chosen], timeline.end_s[chosen]
    draw_boxes(axes, *times_s, row=timeline.device[timeline.stage[chosen]], end_s=timeline.iteration_s, style=style)


def draw_boxes(axes: "Axes", left_s: Floats, right_s: Floats, *, row: Ints, end_s: float, style: Style) -> None:
    """Boxes of one style, each in its row from left to right, on an axis that ends at `end_s`."""
    from matplotlib.collections import PathCollection, PolyCollection
    from matplotlib.path import Path

    if not len(row):
        return
    top, bottom = row - BAR / 2, row + BAR / 2
    sides = ((left_s, top), (right_s, top), (right_s, bottom), (left_s, bottom))
    polygons = np.swapaxes(np.stack([np.column_stack(pair) for pair in sides]), 0, 1)
    width_pt = (right_s - left_s) / end_s * WIDTH_IN * 72
    edges_pt = np.where(width_pt >= EDGE_PT, EDGE_WIDTH_PT, 0.0)
    boxes: PathCollection | PolyCollection
    if len(polygons) <= MOST_BOXES:
        boxes = PolyCollection(list(polygons), linewidth=edges_pt)
    else:
        boxes = PathCollection([Path.make_compound_path_from_polys(polygons)], linewidth=float(np.median(edges_pt)))
    boxes.set(facecolor=style.colour, edgecolor="white", hatch=style.hatch, label=style.name, zorder=2)
    axes.add_collection(boxes, autolim=False)


def _underline_critical_path(axes: "Axes", timeline: Timeline) -> None:
    """A dark line under every span on the critical path, apart from its transfers, which have no row here."""
    from matplotlib.collections import LineCollection

    tasks = [task for task in timeline.critical_path if timeline.kind[task] in STYLES]
    below = timeline.device[timeline.stage[tasks]] + BAR / 2 + 0.05
    ends = [np.column_stack((times_s[tasks], below)) for times_s in (timeline.start_s, timeline.end_s)]
    segments = list(np.stack(ends, axis=1))
    line = LineCollection(segments, colors="black", linewidths=1.6, label="critical path", zorder=3)
    axes.add_collection(line, autolim=False)


def _number_boxes(axes: "Axes", timeline: Timeline) -> None:
    """Write the micro-batch number into every box wide enough for the longest number."""
    forwards = timeline.kind == TaskKind.FORWARD
    micro_batch = int(np.max(timeline.hi[forwards] - timeline.lo[forwards]))
    chosen = np.concatenate([_shown(timeline, kind) for kind in (TaskKind.FORWARD, TaskKind.BACKWARD)])
    write_numbers(
        axes,
        timeline.start_s[chosen],
        timeline.end_s[chosen],
        row=timeline.device[timeline.stage[chosen]],
        number=timeline.lo[chosen] // micro_batch,
        end_s=timeline.iteration_s,
    )


def write_numbers(axes: "Axes", left_s: Floats, right_s: Floats, *, row: Ints, number: Ints, end_s: float) -> None:
    """Write a number into each box that is wide enough for the longest one; the figure has been laid out."""
    from matplotlib.patheffects import withStroke

    outline = [withStroke(linewidth=1.5, foreground="white")]
    widest_pt = DIGIT_PT * (1 + len(str(int(np.max(number, initial=0)))))
    pt_per_s = axes.get_window_extent().width / axes.figure.dpi * 72 / (end_s or 1.0)
    for index in np.flatnonzero((right_s - left_s) * pt_per_s >= widest_pt):
        place = (left_s[index] + right_s[index]) / 2, row[index]
        text = str(number[index])
        axes.text(*place, text, fontsize=FONT_PT, ha="center", va="center", zorder=3, path_effects=outline)


def _shown(timeline: Timeline, kind: TaskKind) -> NDArray[np.intp]:
    return np.flatnonzero((timeline.kind == kind) & (timeline.end_s > timeline.start_s))
