"""Whether any plan fits."""

from hypothesis import given, settings

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.diagnosis.feasibility import fitting_plan
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.property.strategies import problems


@settings(max_examples=100)
@given(problems(max_layers=5, interleaved=True))
def test_a_legal_plan_is_found_where_there_is_one(problem):
    plan = fitting_plan(problem)
    assert (plan is None) == (next(all_plans(problem), None) is None)
    assert plan is None or faults(CostModel(problem), plan) == ()
