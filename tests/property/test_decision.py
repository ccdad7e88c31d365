"""Labels never rule out a plan, and decide the shared rows exactly."""

from hypothesis import given, settings

from planner.cost.cost_model import CostModel
from planner.network.rows import SHARED_FAMILIES, build_rows
from planner.network.stage_network import build_network
from planner.simulator.bounds import lower_bound
from planner.solvers.brute_force import all_plans
from planner.solvers.decision import Decision
from tests.property.strategies import problems


def least_bounds(problem, costs, families=None):
    """For each variant that has a plan, the least lower bound of its plans."""
    least = {}
    for plan in all_plans(problem, costs):
        value_s = lower_bound(costs.plan(plan), families)
        least[plan.variant] = min(value_s, least.get(plan.variant, value_s))
    return least


@settings(max_examples=150)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5))
def test_all_rows_never_rule_out_the_best_plan(problem):
    """At the least bound over all plans some path must be left."""
    costs = CostModel(problem)
    for variant, value_s in least_bounds(problem, costs).items():
        decision = Decision(build_rows(build_network(costs, variant)))
        assert decision.path_below(value_s * (1 + 1e-9)) is not None


@settings(max_examples=100)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5))
def test_shared_rows_are_decided_exactly(problem):
    """A path is found at the optimum of the shared rows, and none just below it."""
    costs = CostModel(problem)
    for variant, value_s in least_bounds(problem, costs, SHARED_FAMILIES).items():
        decision = Decision(build_rows(build_network(costs, variant), shared_only=True))
        assert decision.path_below(value_s * (1 + 1e-9)) is not None
        if value_s > 0:
            assert decision.path_below(value_s * (1 - 1e-6)) is None
