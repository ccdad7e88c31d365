"""How the cost of a search grows with layers, devices and device types; options: `benchmarks/harness/driver.py`.

One size grows at a time. `milp` is asked for a gap of 1 %, within a time limit; the exponent of a size is
the slope of a straight line through log(seconds) over log(size), by least squares, over the searches that ended by
themselves.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Answer, Answers, Tree, answers_of
from benchmarks.problems.registry import SCALING, scaled
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import BENCHMARKS_PAGE, markdown, percent, whole_seconds
from stagecut.planner.core.result import Status
from stagecut.planner.solvers.search.options import SolveOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOLVERS = ("milp", "greedy")
WANTED_GAP = 0.01
QUICK = {"layers": {4: scaled(layers=4, devices=4), 6: scaled(layers=6, devices=4)}}
COLOURS = {"milp": "#D55E00", "greedy": "#0072B2"}
"""Vermilion and blue of Okabe and Ito (jfly.uni-koeln.de/color)."""

Points = Mapping[int, Answers]
"""Answers by size, then by solver."""


def jobs(sweeps: Mapping[str, Mapping[int, Spec]]) -> Jobs:
    """Jobs by what grows and its size."""
    return {f"{what} {size}": partial(measure, spec) for what, specs in sweeps.items() for size, spec in specs.items()}


def measure(spec: Spec, request: Request) -> Tree:
    """The answers of both solvers."""
    options = SolveOptions(gap=WANTED_GAP, time_limit_s=request.time_scale * spec.time_limit_s)
    return {solver: request.answer(spec, solver, options).answer.tree() for solver in SOLVERS if request.wants(solver)}


def sweeps_of(parts: Parts) -> dict[str, dict[int, dict[str, Answer]]]:
    """Answers by what grows, its size and solver."""
    found: dict[str, dict[int, dict[str, Answer]]] = {}
    for name, part in parts.items():
        what, size = name.split()
        found.setdefault(what, {})[int(size)] = answers_of(part)
    return found


def tables(parts: Parts) -> Tables:
    """Every measurement, and the exponents."""
    sweeps = sweeps_of(parts)
    return {BENCHMARKS_PAGE: {"scaling": points_table(sweeps), "exponents": exponents_table(sweeps)}}


def points_table(sweeps: Mapping[str, Points]) -> str:
    """One row per size."""
    rows = [
        [f"{size} {what}", *(cell for solver in SOLVERS for cell in _cells(answers.get(solver)))]
        for what, points in sweeps.items()
        for size, answers in points.items()
    ]
    head = ("size", *(f"{solver}{column}" for solver in SOLVERS for column in ("", ", gap", ", memory")))
    keep = [index for index, name in enumerate(head) if name != "greedy, gap"]
    return markdown([head[index] for index in keep], [[row[index] for index in keep] for row in rows])


def exponents_table(sweeps: Mapping[str, Points]) -> str:
    """One row per dimension that grows."""
    rows = [[what, *(_exponent_cell(points, solver) for solver in SOLVERS)] for what, points in sweeps.items()]
    return markdown(("seconds grow with the power of the number of", *SOLVERS), rows)


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Slope of log(seconds) over log(sizes) by least squares; None for fewer than three points."""
    if len(sizes) < 3:
        return None
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return float(slope)


def finished(points: Points, solver: str) -> list[tuple[int, float]]:
    """Sizes and seconds of the searches that ended before any limit."""
    return [
        (size, answers[solver].search_s or 0.0)
        for size, answers in points.items()
        if solver in answers and _ended_by_itself(answers[solver], solver)
    ]


def pictures(parts: Parts) -> "Mapping[str, Figure]":
    """Seconds over size on logarithmic axes, for each dimension that grows."""
    sweeps = sweeps_of(parts)
    return {"scaling": draw(sweeps)} if sweeps else {}


def draw(sweeps: Mapping[str, Points]) -> "Figure":
    """One panel per dimension; hollow marks for searches that the time limit ended."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    panels = figure.subplots(1, len(sweeps), sharey=True, squeeze=False)[0]
    for axes, (what, points) in zip(panels, sweeps.items(), strict=True):
        for solver in SOLVERS:
            own = {size: answers[solver] for size, answers in points.items() if solver in answers}
            seconds = [max(answer.search_s or 0.0, 1e-3) for answer in own.values()]
            faces = [COLOURS[solver] if _ended_by_itself(answer, solver) else "white" for answer in own.values()]
            axes.plot(list(own), seconds, color=COLOURS[solver], label=solver, zorder=1)
            axes.scatter(list(own), seconds, c=faces, edgecolors=COLOURS[solver], zorder=2)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(list(points), [str(size) for size in points])
        axes.minorticks_off()
        axes.set_xlabel(what)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds of the search")
    panels[0].legend(frameon=False)
    return figure


def _ended_by_itself(answer: Answer, solver: str) -> bool:
    """Options of the spec's gap, or without a gap to prove."""
    return answer.status == Status.OPTIMAL if solver == "milp" else answer.search_s is not None


def _cells(answer: Answer | None) -> tuple[str, str, str]:
    if answer is None or answer.search_s is None:
        return "-", "-", "-"
    memory = "-" if answer.peak_bytes is None else f"{answer.peak_bytes / 2**30:.2f} GiB"
    return whole_seconds(answer.search_s), percent(answer.gap), memory


def _exponent_cell(points: Points, solver: str) -> str:
    found = finished(points, solver)
    slope = exponent(*zip(*found, strict=True)) if found else None
    return "-" if slope is None else f"{slope:.2f} ({len(found)} of {len(points)} searches)"


DRIVER = Driver(name="scaling", jobs=jobs(SCALING), quick_jobs=jobs(QUICK), tables=tables, pictures=pictures)

if __name__ == "__main__":
    DRIVER.main()
