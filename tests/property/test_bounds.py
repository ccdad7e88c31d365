"""No plan of any schedule is simulated faster than its lower bound."""

from hypothesis import given, settings

from planner.cost.cost_model import CostModel
from planner.simulator.bounds import bound_rows
from planner.simulator.engine import iteration_times
from planner.solvers.brute_force import all_plans
from tests.property.strategies import problems

ROUNDING = 1e-9
"""Relative error allowed for sums of the same numbers in another order."""


@settings(max_examples=100)
@given(problems())
def test_no_plan_is_faster_than_any_row(problem):
    """Every plan of problems with replicas, shared links, recomputation, all-reduces and optimizer steps."""
    costs = CostModel(problem)
    plans = list(all_plans(problem, costs))
    numbers = [costs.plan(plan) for plan in plans]
    for plan, number, seconds in zip(plans, numbers, iteration_times(numbers), strict=True):
        too_high = {
            family: values.max()
            for family, values in bound_rows(number).items()
            if len(values) and values.max() > seconds * (1 + ROUNDING)
        }
        assert too_high == {}, f"{plan} takes {seconds} s"
