"""Pictures of plans and proofs: how far each solver is from the best plan, and how fast `milp` closes the gap."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks.harness.measuring import Answers
from benchmarks.problems.specs import COMPARED, OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS_COLOUR, OTHERS_COLOUR = "#D55E00", "#0072B2"
"""Vermilion and blue of Okabe and Ito (jfly.uni-koeln.de/color)."""
MARKERS = "osv^DPX*<>h"
FURTHEST = 10.0
"""Multiple of the best plan; plans beyond it are drawn at the edge."""
WIDTH_IN = 8.0


def pictures(found: Mapping[str, Answers]) -> "Mapping[str, Figure]":
    """Figures by file name."""
    if not found:
        return {}
    return {"quality": draw_plans(found), "proofs": draw_proofs(found)}


def draw_plans(found: Mapping[str, Answers]) -> "Figure":
    """One column per solver and one mark per instance, at its time relative to the best plan."""
    solvers = [name for name in COMPARED if any(name in answers for answers in found.values())]
    figure, axes = _figure(4.5)
    for (name, answers), marker in zip(found.items(), _markers(len(found)), strict=True):
        times_s = {solver: answer.objective_s for solver, answer in answers.items() if answer.objective_s}
        best_s = min(times_s.values(), default=1.0)
        for solver, seconds in times_s.items():
            colour = OURS_COLOUR if solver in OURS else OTHERS_COLOUR
            over = min(seconds / best_s, FURTHEST)
            axes.plot(solvers.index(solver), over, marker, color=colour, alpha=0.7, markersize=6)
        axes.plot([], [], marker, color="grey", label=name)
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 5, FURTHEST], ["1", "2", "5", f"{FURTHEST:g} or more"])
    axes.set_ylabel("iteration time over that of the best plan")
    axes.set_xticks(range(len(solvers)), solvers, rotation=35, ha="right")
    figure.legend(loc="outside right upper", fontsize="x-small", frameon=False)
    return figure


def draw_proofs(found: Mapping[str, Answers]) -> "Figure":
    """The gap proven by `milp` over the seconds of its search, one line per instance."""
    from matplotlib import colormaps

    figure, axes = _figure(4.0)
    # Ten dark colours, then ten light ones.
    axes.set_prop_cycle(color=colormaps["tab20"]([*range(0, 20, 2), *range(1, 20, 2)]))
    for (name, answers), marker in zip(found.items(), _markers(len(found)), strict=True):
        proven = answers["milp"].proven_after_s if "milp" in answers else {}
        points = sorted((seconds, float(gap)) for gap, seconds in proven.items() if float(gap) > 0)
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, markersize=4, drawstyle="steps-post", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("seconds of the search")
    axes.set_ylabel("gap proven")
    if axes.lines:
        figure.legend(loc="outside right upper", fontsize="x-small", frameon=False)
    return figure


def _figure(height_in: float) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="y", color="#EEEEEE", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _markers(count: int) -> list[str]:
    return [MARKERS[index % len(MARKERS)] for index in range(count)]
