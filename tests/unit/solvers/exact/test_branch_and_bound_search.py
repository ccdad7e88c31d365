"""Branch and bound on labels against enumeration."""

import math
import threading

from hypothesis import assume, given, settings

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.rows import build_rows
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact import branch_and_bound
from stagecut.planner.solvers.exact.agenda import Agenda
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from stagecut.planner.solvers.exact.branch_and_bound import Node
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE
from tests.network_paths import coarse_network
from tests.property.strategies import problems

ROUNDING = 1e-9


def labels_of(problem, *, cancelled=None):
    """The root node over the first variant, and a search for the optimum."""
    search = Search(problem, SolveOptions(gap=0.0, time_limit_s=None), cancelled=cancelled)
    rows = build_rows(coarse_network(problem))
    return search, Node(rows, 0.0, prices=ArcFixing.without_prices(rows.network.cluster).prices)


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
    """This holds after every step of every part, and the bound never falls."""
    best_s = least_time(problem)
    search, node = labels_of(problem)
    assume(math.isfinite(best_s) and len(node.rows.network.arcs) > 0)
    parts, proven_s, before_s = [node], math.inf, 0.0
    for _ in range(40):
        bound_s = min([proven_s, *(part.bound_s for part in parts)])
        assert min(bound_s, search.best_s) <= best_s * (1 + ROUNDING)
        assert bound_s >= before_s
        before_s = bound_s
        if not parts:
            break
        outcome = parts.pop(0).step(search)
        parts += outcome.parts
        proven_s = min(proven_s, outcome.proven_s)


@settings(max_examples=60)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5))
def test_splitting_reaches_the_optimum(problem):
    """Either the bound rises to it, or the plans below were met and simulated."""
    best_s = least_time(problem)
    search, node = labels_of(problem)
    assume(math.isfinite(best_s) and len(node.rows.network.arcs) > 0)
    agenda = Agenda(search, [node])
    agenda.run()
    assert agenda.bound_s >= best_s * (1 - ROUNDING)
    assert search.best_s >= best_s * (1 - ROUNDING)


def heterogeneous_chain():
    return next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain")


def test_bound_of_the_heterogeneous_chain_is_its_optimum():
    """20 s, see the catalogue; bisection alone comes within its precision."""
    search, node = labels_of(heterogeneous_chain())
    agenda = Agenda(search, [node])
    agenda.run()
    assert search.best_s == 20.0
    assert agenda.bound_s >= 20.0 * (1 - 2 * branch_and_bound.PRECISION)


def test_cancelled_search_asks_nothing():
    cancelled = threading.Event()
    cancelled.set()
    search, node = labels_of(heterogeneous_chain(), cancelled=cancelled)
    node.step(search)
    assert node.bound_s == 0.0
