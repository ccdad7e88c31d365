"""Solvers agree on problems whose operators may be divided each in its own way."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from stagecut.planner.core.result import Status
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import arrangement_of, assemble
from stagecut.planner.network.stage_network import build_network
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.network_paths import paths_by_plan
from tests.property.sharding.sharded_problems import sharded_problems

EXACT = SolveOptions(gap=0.0, time_limit_s=None)


@settings(max_examples=15)
@given(sharded_problems(max_layers=3))
def test_milp_finds_the_optimum_of_brute_force_over_all_shardings(problem):
    oracle, result, dynamic = (run(problem, name, EXACT) for name in ("brute-force", "milp", "dp"))
    assert (result.status is Status.INFEASIBLE) == (oracle.status is Status.INFEASIBLE)
    if oracle.plan is not None:
        assert result.objective_s == pytest.approx(oracle.objective_s, rel=1e-9)
        assert result.bound_s == pytest.approx(oracle.objective_s, rel=1e-9)
        assert (dynamic.bound_s or 0.0) <= oracle.objective_s * (1 + 1e-9)


@settings(max_examples=15)
@given(sharded_problems(max_layers=3))
def test_allowing_shardings_never_makes_the_optimum_slower(problem):
    plain = replace(problem, job=replace(problem.job, sharding=None))
    divided, alike = run(problem, "milp", EXACT), run(plain, "milp", EXACT)
    if alike.plan is not None:
        assert divided.objective_s <= alike.objective_s * (1 + 1e-9)


@settings(max_examples=15)
@given(sharded_problems(max_layers=2))
def test_a_plan_costs_what_the_network_says_of_its_arrangement(problem):
    costs = CostModel(problem)
    for plan in all_plans(problem, costs):
        own = costs.of(plan.share)
        numbers = own.plan(plan)
        for index, placed in enumerate(arrangement_of(own, plan)):
            stage = plan.stages[index]
            cost = own.stage(
                placed.placement,
                micro_batch=plan.micro_batch,
                recompute=stage.recompute,
                start=stage.start,
                stop=stage.stop,
            )
            for name in ("forward_s", "backward_s", "sync_s", "update_s", "static_bytes", "saved_bytes"):
                assert getattr(numbers, name)[index] == pytest.approx(getattr(cost, name)[0], rel=1e-9, abs=1e-12)
        assert lower_bound(numbers) > 0
        assert assemble(own, plan.variant, arrangement_of(own, plan)) is not None


@settings(max_examples=15)
@given(sharded_problems(max_layers=3))
def test_plans_that_a_network_leaves_out_take_as_long_as_one_that_is_there(problem):
    """One stage stands for all prices that give equal costs."""
    costs = CostModel(problem)
    for variant in problem.variants:
        network = build_network(costs, variant)
        found = {plan: iteration_times([network.costs.plan(plan)])[0] for plan in paths_by_plan(network)}
        for plan in all_plans(problem, costs):
            if plan.variant == variant:
                (seconds,) = iteration_times([network.costs.plan(plan)])
                assert plan in found or any(seconds == pytest.approx(other, rel=1e-12) for other in found.values())
