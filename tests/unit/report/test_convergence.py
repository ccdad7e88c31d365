"""The chart of a search says what its history says."""

import math

import numpy as np
import pytest

from stagecut.planner.core.result import HistoryPoint, Result, Status
from stagecut.planner.report.convergence import convergence_bytes, draw_convergence, steps_of
from stagecut.planner.report.images import ImageFormat

HISTORY = tuple(
    HistoryPoint(seconds=seconds, objective_s=best_s, bound_s=bound_s)
    for seconds, best_s, bound_s in ((1.0, 3.0, None), (2.0, 2.0, None), (4.0, 2.0, 1.0), (5.0, 2.0, 1.9))
)
RESULT = Result(status=Status.FEASIBLE, solver="milp", seconds=6.0, objective_s=2.0, bound_s=1.95, history=HISTORY)
EMPTY = Result(status=Status.INFEASIBLE, solver="milp", seconds=0.0)
ONLY_BOUND = Result(
    status=Status.NO_PLAN,
    solver="milp",
    seconds=2.0,
    bound_s=1.0,
    history=(HistoryPoint(seconds=1.0, objective_s=None, bound_s=1.0),),
)
ONLY_PLAN = Result(
    status=Status.FEASIBLE,
    solver="greedy",
    seconds=2.0,
    objective_s=3.0,
    history=(HistoryPoint(seconds=1.0, objective_s=3.0, bound_s=None),),
)


def lines(axes):
    """Step lines by the first two words of their label."""
    return {" ".join(line.get_label().split()[:2]): line for line in axes.lines if " " in line.get_label()}


def test_steps_end_with_the_search():
    """The last bound may come with the result, without a point of its own."""
    steps = steps_of(RESULT)
    assert steps.seconds.tolist() == [1.0, 2.0, 4.0, 5.0, 6.0]
    assert steps.best_s.tolist() == [3.0, 2.0, 2.0, 2.0, 2.0]
    assert steps.bound_s[2:].tolist() == [1.0, 1.9, 1.95]
    assert np.isnan(steps.bound_s[:2]).all()


def test_lines_hold_a_value_until_the_next_one():
    _, axes = draw_convergence(RESULT)
    best, bound = lines(axes)["best plan"], lines(axes)["lower bound"]
    assert (best.get_drawstyle(), bound.get_drawstyle()) == ("steps-post", "steps-post")
    assert best.get_ydata()[-1] == 2.0
    assert bound.get_ydata()[-1] == 1.95
    assert (best.get_label(), bound.get_label()) == ("best plan 2 s", "lower bound 1.95 s")


def test_axes_are_linear_and_begin_with_the_search():
    _, axes = draw_convergence(RESULT)
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")
    assert axes.get_xlim()[0] == 0.0
    assert axes.get_xlim()[1] >= 6.0


def test_gap_is_shaded_from_the_first_plan_on():
    """Nothing is proven before 4 s: the gap goes down to zero."""
    _, axes = draw_convergence(RESULT)
    (area,) = axes.collections
    corners = area.get_paths()[0].vertices
    assert (corners[:, 0].min(), corners[:, 0].max()) == (1.0, 6.0)
    assert (corners[:, 1].min(), corners[:, 1].max()) == (0.0, 3.0)
    assert area.get_label() == "gap"


def test_title_states_the_final_gap():
    """(2 - 1.95) / 2 = 2.5 %."""
    _, axes = draw_convergence(RESULT, title="three on pair")
    assert axes.get_title(loc="left") == "three on pair: milp, gap 2.50 % after 6 s"


def test_first_plan_far_off_does_not_hide_the_rest():
    """Ten times the last time is cut off; 1.0 and 3.0 are within once of 2.0."""
    far = HistoryPoint(seconds=0.5, objective_s=20.0, bound_s=None)
    changed = Result(
        status=Status.FEASIBLE, solver="milp", seconds=6.0, objective_s=2.0, bound_s=1.95, history=(far, *HISTORY)
    )
    _, axes = draw_convergence(changed)
    low, high = axes.get_ylim()
    assert low <= 1.0
    assert 3.0 <= high < 4.0


@pytest.mark.parametrize(
    ("result", "words", "shown"),
    [
        (EMPTY, "no plan", set()),
        (ONLY_BOUND, "no plan", {"lower bound"}),
        (ONLY_PLAN, "nothing proven", {"best plan"}),
    ],
)
def test_search_with_nothing_to_show_has_a_chart_too(result, words, shown):
    _, axes = draw_convergence(result)
    assert set(lines(axes)) == shown
    assert words in axes.get_title(loc="left")
    assert not axes.collections
    assert all(math.isfinite(limit) for limit in (*axes.get_xlim(), *axes.get_ylim()))


@pytest.mark.parametrize(("image", "start"), [(ImageFormat.PNG, b"\x89PNG"), (ImageFormat.SVG, b"<?xml")])
def test_same_result_gives_the_same_bytes(image, start):
    first, second = (convergence_bytes(RESULT, image, title="50$ $x$") for _ in range(2))
    assert first == second
    assert first.startswith(start)
