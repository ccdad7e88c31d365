"""The search over partition, mapping and sublot sizes against the enumeration of all of them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.simulator.bounds import bound_rows
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.routes import flow_routes, shared_routes
from stagecut.planner.solvers.reference.unequal_plans import all_unequal_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.property.strategies import problems

MOST_PLANS = 400
CHOICES = ((1, 2), (1, 3), (2, 3), (1, 2, 4))


@st.composite
def unequal_problems(draw):
    """Few layers, devices and samples; every process may have a size of its own."""
    problem = draw(problems(max_layers=3, max_devices=2, max_micro_batches=3))
    job = replace(
        problem.job,
        unequal=True,
        schedules=(Schedule.GPIPE,),
        micro_batches=draw(st.sampled_from(CHOICES)),
        global_batch=draw(st.integers(1, 3)) * draw(st.sampled_from((2, 4))),
    )
    return replace(problem, job=job)


def enumerated(problem):
    """All plans with sizes of their own, and their simulated times; too large problems are rejected."""
    costs, plans = CostModel(problem), []
    for plan in all_unequal_plans(problem, costs):
        plans.append(plan)
        assume(len(plans) <= MOST_PLANS)
    return plans, iteration_times([costs.plan(plan) for plan in plans]) if plans else []


@settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(problem=unequal_problems())
def test_search_finds_the_fastest_sizes_and_bounds_all_of_them(problem):
    plans, times_s = enumerated(problem)
    equal = run(replace(problem, job=replace(problem.job, unequal=False)), "milp", SolveOptions(gap=0.0))
    best_s = min([*times_s, *([equal.objective_s] if equal.objective_s is not None else [])], default=None)
    result = run(problem, "milp", SolveOptions(gap=0.0, time_limit_s=60.0))
    if best_s is None:
        assert result.status is Status.INFEASIBLE
        return
    assert (result.bound_s or 0.0) <= best_s * (1 + 1e-9)
    assert result.objective_s >= best_s * (1 - 1e-9)
    assert not faults(CostModel(problem), result.plan)
    if not any(shares_links(problem, plan) for plan in plans):
        assert result.objective_s == pytest.approx(best_s, rel=1e-9)
        assert result.status is Status.OPTIMAL


def shares_links(problem, plan):
    return any(shared_routes(flow_routes(CostModel(problem).plan(plan))))


@settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(problem=unequal_problems(), data=st.data())
def test_flush_row_is_the_simulated_time_where_no_link_is_shared(problem, data):
    plans, times_s = enumerated(problem)
    assume(plans)
    index = data.draw(st.integers(0, len(plans) - 1))
    costs = CostModel(problem).plan(plans[index])
    assume(costs.sublots is not None)
    row_s = max(float(values.max()) for values in bound_rows(costs).values())
    if any(shared_routes(flow_routes(costs))):
        assert row_s <= times_s[index] * (1 + 1e-12)
    else:
        assert row_s == pytest.approx(times_s[index], rel=1e-12)
