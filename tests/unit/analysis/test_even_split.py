"""The even split beside the plan of a search."""

import math
from dataclasses import replace

import pytest

from stagecut.planner.analysis.even_split import even_split, no_slower_than, seconds_of
from stagecut.planner.core.result import HistoryPoint, Result, Status, StopCause
from tests.catalogue import CATALOGUE

PROBLEM = CATALOGUE[0].problem
EVEN = even_split(PROBLEM, time_limit_s=60.0)


def found(times, **changes):
    """What a search ended with whose plan takes this many times as long as the even split."""
    seconds = times * EVEN.objective_s
    known = {"status": Status.FEASIBLE, "solver": "milp", "seconds": 1.0, "objective_s": seconds, "bound_s": 0.0}
    return Result(**known | {"plan": EVEN.plan, "stopped_by": StopCause.TIME} | changes)


def test_a_slower_plan_gives_way_to_the_even_split():
    """The bound is that of the search, and its history ends with the plan shown."""
    slower = found(2.0, plan=None, bound_s=EVEN.objective_s / 2)
    result = no_slower_than(EVEN, slower, gap=0.01)
    last = HistoryPoint(seconds=1.0, objective_s=EVEN.objective_s, bound_s=EVEN.objective_s / 2)
    assert result == replace(slower, plan=EVEN.plan, objective_s=EVEN.objective_s, history=(last,))


def test_a_search_without_a_bound_yet_gives_way_too():
    result = no_slower_than(EVEN, found(2.0, bound_s=None), gap=0.01)
    assert (result.objective_s, result.bound_s, result.status) == (EVEN.objective_s, None, Status.FEASIBLE)


def test_what_is_then_as_good_as_wanted_is_optimal():
    """As if the search had reached that gap before its time ended."""
    slower = found(2.0, bound_s=0.9 * EVEN.objective_s)
    wide, close = (no_slower_than(EVEN, slower, gap=gap) for gap in (0.09, 0.1))
    assert (wide.status, wide.stopped_by) == (Status.FEASIBLE, StopCause.TIME)
    assert (close.status, close.stopped_by) == (Status.OPTIMAL, None)


@pytest.mark.parametrize(
    "result",
    [
        found(0.5),
        found(1.0),
        found(2.0, solver="pipedream", bound_s=None),
        found(2.0, stopped_by=None),
        found(2.0, bound_s=1.5 * EVEN.objective_s),
    ],
)
def test_other_plans_stay(result):
    """Faster and equal ones; planners that prove nothing; searches that ended; a bound that the split contradicts."""
    assert no_slower_than(EVEN, result, gap=0.01) is result


def test_without_an_even_split_a_plan_stays():
    """It does not fit, or is not known."""
    result = found(2.0)
    assert no_slower_than(None, result, gap=0.01) is result
    assert no_slower_than(replace(EVEN, plan=None, objective_s=None), result, gap=0.01) is result
    assert seconds_of(replace(EVEN, plan=None, objective_s=None)) == math.inf


def test_time_that_runs_out_leaves_none():
    assert even_split(PROBLEM, time_limit_s=1e-9) is None
