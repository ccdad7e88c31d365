"""Whether any plan fits."""

from hypothesis import given, settings

from planner.cost.cost_model import CostModel
from planner.cost.legality import faults
from planner.solvers.brute_force import all_plans
from planner.solvers.feasibility import fitting_plan
from tests.property.strategies import problems


@settings(max_examples=100)
@given(problems(max_layers=5, interleaved=True))
def test_a_legal_plan_is_found_where_there_is_one(problem):
    plan = fitting_plan(problem)
    assert (plan is None) == (next(all_plans(problem), None) is None)
    assert plan is None or faults(CostModel(problem), plan) == ()
