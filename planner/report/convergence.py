"""Chart of a search: how the best time falls and the bound rises until they meet."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.result import Result
from stagecut.planner.core.units import format_seconds
from stagecut.planner.report.images import ImageFormat, encoded, label_times, reproducible
from stagecut.planner.report.labels import percent_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


WIDTH_IN, HEIGHT_IN = 8.0, 4.5
TIME_COLOUR, BOUND_COLOUR, GAP_COLOUR = "#D55E00", "#0072B2", "#DDDDDD"
"""Vermilion and blue of Okabe and Ito (jfly.uni-koeln.de/color), distinguishable under every kind of colour vision."""
MARGIN, RIGHT_MARGIN = 0.08, 0.02
"""Share of the height above and below the lines, and of the width after their end."""
FURTHEST = 1.0
"""Plans and bounds further from the final best time than this share of it are cut off: they would hide the rest of
the search."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """Best time and bound as step functions of the seconds since the search began; NaN where unknown."""

    seconds: Floats
    """Shape (n,), the last one the end of the search."""
    best_s: Floats
    bound_s: Floats


def steps_of(result: Result) -> Steps:
    """The history of a result, extended to the end of the search with its final values."""
    points = result.history
    best_s = [point.objective_s for point in points] + [result.objective_s]
    bound_s = [point.bound_s for point in points] + [result.bound_s]
    return Steps(
        seconds=np.array([*(point.seconds for point in points), result.seconds]),
        best_s=np.array(best_s, dtype=np.float64),
        bound_s=np.array(bound_s, dtype=np.float64),
    )


def convergence_bytes(result: Result, image: ImageFormat, *, title: str = "") -> bytes:
    """The chart of :func:`draw_convergence` as a file; the same bytes for the same result."""
    with reproducible():
        figure, _ = draw_convergence(result, title=title)
        return encoded(figure, image)


def draw_convergence(result: Result, *, title: str = "") -> tuple["Figure", "Axes"]:
    """Draw best time and bound as steps over the seconds of the search, the gap between them grey.

    The title precedes the solver and the gap.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    axes = figure.add_subplot()
    steps = steps_of(result)
    low_s, high_s = _visible_range(steps)
    _label_axes(axes, end_s=result.seconds, low_s=low_s, high_s=high_s)
    _shade_gap(axes, steps)
    _draw_line(axes, steps.seconds, steps.best_s, colour=TIME_COLOUR, marker="v", name="best plan")
    _draw_line(axes, steps.seconds, steps.bound_s, colour=BOUND_COLOUR, marker="^", name="lower bound")
    axes.set_title(_title(result, title), loc="left")
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure, axes


def _title(result: Result, title: str) -> str:
    head = f"{visible(title)}: " if title else ""
    nothing = "no plan" if result.objective_s is None else "nothing proven"
    ending = nothing if result.gap is None else f"gap {percent_label(result.gap)}"
    return f"{head}{result.solver}, {ending} after {format_seconds(result.seconds)}"


def _visible_range(steps: Steps) -> tuple[float, float]:
    """Lowest and highest time to show: all but those far from the final best time."""
    known = np.concatenate((steps.best_s, steps.bound_s))
    known = known[np.isfinite(known)]
    if not len(known):
        return 0.0, 1.0
    centre = steps.best_s[-1] if np.isfinite(steps.best_s[-1]) else known.max()
    near = known[np.abs(known - centre) <= FURTHEST * centre]
    low_s, high_s = float(near.min()), float(near.max())
    margin_s = MARGIN * ((high_s - low_s) or abs(centre) or 1.0)
    return max(0.0, low_s - margin_s), high_s + margin_s


def _label_axes(axes: "Axes", *, end_s: float, low_s: float, high_s: float) -> None:
    axes.set_xlim(0, (1 + RIGHT_MARGIN) * end_s or 1.0)
    axes.set_ylim(low_s, high_s)
    axes.set_xlabel("seconds of the search")
    label_times(axes.yaxis, high_s, name="iteration time", digits=6)
    axes.grid(axis="y", color="#EEEEEE", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)


def _shade_gap(axes: "Axes", steps: Steps) -> None:
    """Grey between the lines; down to zero where nothing is proven yet, none if nothing ever is."""
    if np.isfinite(steps.bound_s).any() and np.isfinite(steps.best_s).any():
        floor_s = np.nan_to_num(steps.bound_s, nan=0.0)
        axes.fill_between(
            steps.seconds, floor_s, steps.best_s, step="post", color=GAP_COLOUR, linewidth=0, label="gap", zorder=1
        )


def _draw_line(axes: "Axes", seconds: Floats, times_s: Floats, *, colour: str, marker: str, name: str) -> None:
    """A step line with a mark at every step, and its last value in the legend."""
    known = np.flatnonzero(np.isfinite(times_s))
    if not len(known):
        return
    moves = [index for index in known if index == known[0] or times_s[index] != times_s[index - 1]]
    label = f"{name} {format_seconds(float(times_s[known[-1]]))}"
    axes.step(seconds, times_s, where="post", color=colour, linewidth=1.6, label=label, zorder=2)
    axes.plot(seconds[moves], times_s[moves], marker, color=colour, markersize=5, zorder=3)
