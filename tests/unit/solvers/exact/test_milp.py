"""The solver `milp`: budgets, gaps, and every schedule in one run."""

import threading
from dataclasses import replace

import pytest

from stagecut.planner.core.result import Status
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions
from tests.catalogue import CATALOGUE, PLAIN_SCHEDULES

ROUNDING = 1e-9
HETEROGENEOUS = next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain")
FEASIBLE = [known for known in CATALOGUE if known.optimum_s is not None]


def by_name(known):
    return known.name


@pytest.mark.parametrize("time_limit_s", [1e-9, 2e-3, 2e-2])
@pytest.mark.parametrize("known", FEASIBLE, ids=by_name)
def test_whatever_the_time_the_answer_is_legal_and_its_bound_holds(known, time_limit_s):
    result = run(known.problem, "milp", SolveOptions(time_limit_s=time_limit_s))
    assert result.status in {Status.NO_PLAN, Status.FEASIBLE, Status.OPTIMAL}
    assert (result.plan is None) == (result.status is Status.NO_PLAN) == (result.objective_s is None)
    assert result.plan is None or faults(CostModel(known.problem), result.plan) == ()
    assert result.objective_s is None or result.objective_s >= known.optimum_s
    assert result.bound_s is None or result.bound_s <= known.optimum_s * (1 + ROUNDING)


@pytest.mark.parametrize("rows", RowChoice)
@pytest.mark.parametrize("known", CATALOGUE, ids=by_name)
def test_cancelled_before_the_start_is_an_interruption(known, rows):
    cancelled = threading.Event()
    cancelled.set()
    result = run(known.problem, "milp", SolveOptions(rows=rows), cancelled=cancelled)
    assert (result.status, result.plan, result.bound_s, result.row_bound_s) == (Status.INTERRUPTED, None, None, None)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_cancelled_search_keeps_its_best_plan(steps):
    """The event is set by one of the first plans, or the first bound on them."""
    cancelled, seen = threading.Event(), []

    def cancel_later(point):
        seen.extend([point] if point.objective_s is not None else [])  # a bound is there before a plan
        if len(seen) == steps:
            cancelled.set()

    result = run(HETEROGENEOUS, "milp", SolveOptions(gap=0.0), observer=cancel_later, cancelled=cancelled)
    assert result.status in {Status.INTERRUPTED, Status.OPTIMAL}
    assert result.objective_s == seen[-1].objective_s
    assert faults(CostModel(HETEROGENEOUS), result.plan) == ()


@pytest.mark.parametrize("gap", [0.0, 1e-4, 0.05, 0.5])
@pytest.mark.parametrize("known", FEASIBLE, ids=by_name)
def test_optimal_means_within_the_gap(known, gap):
    result = run(known.problem, "milp", SolveOptions(gap=gap, time_limit_s=None))
    assert result.status is Status.OPTIMAL
    assert result.gap <= gap + ROUNDING
    assert result.bound_s <= known.optimum_s * (1 + ROUNDING)
    assert known.optimum_s <= result.objective_s <= known.optimum_s * (1 + ROUNDING) / (1 - gap)


@pytest.mark.parametrize("known", FEASIBLE, ids=by_name)
def test_optimum_of_the_shared_rows_is_the_bound(known):
    result = run(known.problem, "milp", SolveOptions(rows=RowChoice.SHARED, time_limit_s=None))
    assert result.row_bound_s is not None
    assert result.bound_s == pytest.approx(result.row_bound_s, rel=ROUNDING)
    assert result.row_bound_s <= known.optimum_s * (1 + ROUNDING)


def test_every_schedule_is_searched_in_one_run():
    """Two equal devices: 20 s under any of them."""
    problem = replace(HETEROGENEOUS, job=replace(HETEROGENEOUS.job, schedules=PLAIN_SCHEDULES))
    result = run(problem, "milp", SolveOptions(gap=0.0, time_limit_s=None))
    assert (result.status, result.objective_s) == (Status.OPTIMAL, 20.0)


def test_same_options_give_the_same_answer():
    first, second = (run(HETEROGENEOUS, "milp", SolveOptions(gap=0.0, time_limit_s=None)) for _ in range(2))
    timeless = {"seconds": 0.0, "step_seconds": (), "history": ()}
    assert replace(first, **timeless) == replace(second, **timeless)
