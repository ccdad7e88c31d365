"""Branch and bound on labels against enumeration."""

import math
import threading

from hypothesis import assume, given, settings

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.rows import build_rows
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact import branch_and_bound
from stagecut.planner.solvers.exact.branch_and_bound import BranchAndBound
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE
from tests.network_paths import coarse_network
from tests.property.strategies import problems

ROUNDING = 1e-9
PLENTY = 10_000


def labels_of(problem, *, cancelled=None):
    search = Search(problem, SolveOptions(time_limit_s=None), cancelled=cancelled)
    rows = build_rows(coarse_network(problem))
    return search, BranchAndBound(search, rows, 0.0), rows


def least_time(problem):
    """Least time of the plans of the first variant; infinite if there are none."""
    costs = CostModel(problem)
    plans = [plan for plan in all_plans(problem, costs) if plan.variant == problem.variants[0]]
    return (
        min(map(float, iteration_times([costs.plan(plan) for plan in plans])), default=math.inf) if plans else math.inf
    )


@settings(max_examples=40)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5))
def test_no_plan_is_faster_save_those_simulated(problem):
    """This holds at every step and for any limit, here twice the optimum."""
    best_s = least_time(problem)
    search, labels, rows = labels_of(problem)
    assume(math.isfinite(best_s) and len(rows.network.arcs) > 0)
    before_s = 0.0
    for _ in range(40):
        labels.raise_to(2 * best_s, may_split=True, max_steps=1)
        assert min(labels.bound_s, search.best_s) <= best_s * (1 + ROUNDING)
        assert labels.bound_s >= before_s
        before_s = labels.bound_s


@settings(max_examples=60)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5))
def test_splitting_reaches_the_optimum(problem):
    """Either the bound rises to it, or the plans below were met and simulated."""
    best_s = least_time(problem)
    search, labels, rows = labels_of(problem)
    assume(math.isfinite(best_s) and len(rows.network.arcs) > 0)
    labels.raise_to(best_s, may_split=True, max_steps=PLENTY)
    assert labels.bound_s >= best_s * (1 - ROUNDING)
    assert search.best_s >= best_s * (1 - ROUNDING)


def heterogeneous_chain():
    return next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain")


def test_bound_of_the_heterogeneous_chain_is_its_optimum():
    """20 s, see the catalogue; bisection alone comes within its precision."""
    _, labels, _ = labels_of(heterogeneous_chain())
    labels.raise_to(20.0, may_split=True, max_steps=PLENTY)
    assert labels.bound_s >= 20.0 * (1 - 2 * branch_and_bound.PRECISION)


def test_labels_are_settled_before_they_branch():
    _, labels, _ = labels_of(heterogeneous_chain())
    assert not labels.settled
    labels.raise_to(40.0, may_split=False, max_steps=PLENTY)
    assert labels.settled
    settled_s = labels.bound_s
    labels.raise_to(40.0, may_split=False, max_steps=PLENTY)
    assert labels.bound_s == settled_s


def test_cancelled_search_asks_nothing():
    cancelled = threading.Event()
    cancelled.set()
    _, labels, _ = labels_of(heterogeneous_chain(), cancelled=cancelled)
    labels.raise_to(40.0, may_split=True, max_steps=PLENTY)
    assert labels.bound_s == 0.0
