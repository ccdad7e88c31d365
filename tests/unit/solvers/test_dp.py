"""The dynamic programme against the enumeration of all plans."""

import math
import threading

import pytest
from hypothesis import given, settings

from planner.core.result import Status
from planner.cost.cost_model import CostModel
from planner.network import counted_paths
from planner.network.rows import SHARED_FAMILIES
from planner.simulator.bounds import lower_bound
from planner.solvers import dp
from planner.solvers.brute_force import all_plans
from planner.solvers.options import SolveOptions
from planner.solvers.registry import run
from planner.solvers.search import Search
from tests.catalogue import CATALOGUE
from tests.property.strategies import problems

UNLIMITED_TIME = SolveOptions(time_limit_s=None)


def least_rows(problem):
    costs = CostModel(problem)
    values = (lower_bound(costs.plan(plan), SHARED_FAMILIES) for plan in all_plans(problem, costs))
    return min(values, default=math.inf)


@settings(max_examples=80)
@given(problems(max_layers=6, max_micro_batches=5))
def test_least_rows_of_all_plans_are_found(problem):
    result, least_s = run(problem, "dp", UNLIMITED_TIME), least_rows(problem)
    if math.isinf(least_s):
        assert result.status is Status.INFEASIBLE
    else:
        assert result.row_bound_s == pytest.approx(least_s, rel=1e-9, abs=0.0)
        assert (result.bound_s or 0.0) == pytest.approx(least_s, rel=1e-9, abs=0.0)


def test_labels_too_many_for_memory_leave_a_weaker_bound(monkeypatch):
    """The greedy plan, and what single families of rows prove of it."""
    monkeypatch.setattr(counted_paths, "MAX_LABELS", 1)
    problem = next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain")
    result = run(problem, "dp", SolveOptions())
    assert (result.status, result.row_bound_s) == (Status.FEASIBLE, None)
    assert 0 < result.bound_s < 20.0 <= result.objective_s


@pytest.mark.parametrize("known", CATALOGUE, ids=lambda known: known.name)
def test_without_time_nothing_false_is_claimed(known):
    result = run(known.problem, "dp", SolveOptions(time_limit_s=1e-9))
    assert result.status in {Status.NO_PLAN, Status.FEASIBLE, Status.INFEASIBLE}
    assert (result.status is Status.INFEASIBLE) <= (known.optimum_s is None)
    assert result.bound_s is None or known.optimum_s is None or result.bound_s <= known.optimum_s * (1 + 1e-9)


def test_cancelled_before_the_start_is_an_interruption():
    cancelled = threading.Event()
    cancelled.set()
    result = run(CATALOGUE[0].problem, "dp", SolveOptions(), cancelled=cancelled)
    assert (result.status, result.plan) == (Status.INTERRUPTED, None)


def test_variant_of_the_best_plan_comes_first():
    """Without a plan, variants keep the order of the job."""
    problem = CATALOGUE[1].problem
    search = Search(problem, SolveOptions())
    assert dp.promising_first(problem, search) == list(problem.variants)
