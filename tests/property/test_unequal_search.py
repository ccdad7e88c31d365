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
    """Costs and simulated times of all plans with sizes of their own; too large problems are rejected."""
    model, plans = CostModel(problem), []
    for plan in all_unequal_plans(problem, model):
        plans.append(plan)
        assume(len(plans) <= MOST_PLANS)
    costs = [model.plan(plan) for plan in plans]
    return costs, iteration_times(costs) if costs else []


@settings(max_examples=15, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(unequal_problems())
def test_search_finds_the_fastest_sizes_and_bounds_all_of_them(problem):
    """The flush row of every plan is its simulated time where it shares no link."""
    every, times_s = enumerated(problem)
    sharing = [any(shared_routes(flow_routes(costs))) for costs in every]
    for costs, shares, time_s in zip(every, sharing, times_s, strict=True):
        check_flush_row(costs, time_s, shares_links=shares)
    equal = run(replace(problem, job=replace(problem.job, unequal=False)), "milp", SolveOptions(gap=0.0))
    best_s = min([*times_s, *([equal.objective_s] if equal.objective_s is not None else [])], default=None)
    result = run(problem, "milp", SolveOptions(gap=0.0, time_limit_s=60.0))
    if best_s is None:
        assert result.status is Status.INFEASIBLE
        return
    assert (result.bound_s or 0.0) <= best_s * (1 + 1e-9)
    assert result.objective_s >= best_s * (1 - 1e-9)
    assert not faults(CostModel(problem), result.plan)
    if not any(sharing):
        assert result.objective_s == pytest.approx(best_s, rel=1e-9)
        assert result.status is Status.OPTIMAL


def check_flush_row(costs, time_s, *, shares_links):
    if costs.sublots is None:
        return
    row_s = max(float(values.max()) for values in bound_rows(costs).values())
    if shares_links:
        assert row_s <= time_s * (1 + 1e-12)
    else:
        assert row_s == pytest.approx(time_s, rel=1e-12)
