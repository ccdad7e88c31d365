"""The assignment formulation against enumeration."""

import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.rows import SHARED_FAMILIES
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.reference.textbook_model import TextbookModel
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import CATALOGUE, PLAIN_SCHEDULES, chain, job, one_device_per_server
from tests.property.strategies import problems

UNLIMITED_TIME = SolveOptions(time_limit_s=None)


def _check_against_enumeration(problem, solver):
    costs = CostModel(problem)
    least_s = min((lower_bound(costs.plan(plan), SHARED_FAMILIES) for plan in all_plans(problem, costs)), default=None)
    result = run(problem, solver, UNLIMITED_TIME)
    if least_s is None:
        assert result.status is Status.INFEASIBLE
    else:
        assert result.row_bound_s == pytest.approx(least_s, rel=1e-9, abs=1e-9)
        assert (result.bound_s or 0.0) == result.row_bound_s <= result.objective_s


@pytest.mark.parametrize("solver", ["textbook-milp", "textbook-milp-cbc"])
def test_halved_micro_batches_are_refused(solver):
    problem = CATALOGUE[0].problem
    with pytest.raises(UnsupportedError, match="does not support halved micro-batches"):
        run(replace(problem, job=replace(problem.job, slice=2)), solver, UNLIMITED_TIME)


@settings(max_examples=40)
@given(problems(max_layers=4, max_micro_batches=4, tables=False))
def test_least_rows_of_all_plans_are_found_by_highs(problem):
    _check_against_enumeration(problem, "textbook-milp")


@settings(max_examples=16)
@given(problems(max_layers=4, max_devices=3, tables=False))
def test_least_rows_of_all_plans_are_found_by_cbc(problem):
    _check_against_enumeration(problem, "textbook-milp-cbc")


@pytest.mark.parametrize("known", CATALOGUE[:5], ids=lambda known: known.name)
def test_cbc_finds_the_known_optimum(known):
    result = run(known.problem, "textbook-milp-cbc", SolveOptions(gap=1e-9))
    assert (result.status, result.objective_s) == (Status.OPTIMAL, known.optimum_s)


def test_later_layers_leave_room_for_the_stages_to_come():
    """3 layers, 2 devices: the last layer is always in the last stage."""
    problem = Problem(model=chain(3, {"gpu": 1.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(1))
    model = TextbookModel(CostModel(problem), problem.variants[0])
    assert [list(model.positions_of(layer)) for layer in range(3)] == [[1, 2], [1, 2], [1]]


def test_cancelled_search_keeps_the_plan_of_the_first_variant_and_claims_nothing():
    problem = next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain")
    problem = replace(problem, job=replace(problem.job, schedules=PLAIN_SCHEDULES))
    cancelled = threading.Event()
    result = run(problem, "textbook-milp", UNLIMITED_TIME, observer=lambda _: cancelled.set(), cancelled=cancelled)
    assert result.status is Status.INTERRUPTED
    assert result.plan is not None
    assert (result.bound_s, result.row_bound_s) == (None, None)


@pytest.mark.parametrize("solver", ["textbook-milp", "textbook-milp-cbc"])
def test_interleaved_plans_are_refused(solver):
    problem = replace(CATALOGUE[0].problem, job=replace(CATALOGUE[0].problem.job, schedules=tuple(Schedule)))
    with pytest.raises(UnsupportedError, match=f"solver '{solver}': does not support schedule interleaved"):
        run(problem, solver, UNLIMITED_TIME)


@pytest.mark.parametrize("solver", ["textbook-milp", "textbook-milp-cbc"])
def test_measured_links_are_refused(solver):
    network = Link(bandwidth_bytes_per_s=1.0, table=((1.0, 1.0), (2.0, 3.0)))
    known = CATALOGUE[0].problem
    problem = replace(known, cluster=replace(known.cluster, network=network))
    with pytest.raises(
        UnsupportedError, match=f"solver '{solver}': .* measured tables; leave these out, or use 'milp'"
    ):
        run(problem, solver, UNLIMITED_TIME)


def test_without_time_there_is_neither_plan_nor_claim():
    result = run(CATALOGUE[0].problem, "textbook-milp", SolveOptions(time_limit_s=1e-9))
    assert (result.status, result.plan, result.bound_s, result.row_bound_s) == (Status.NO_PLAN, None, None, None)
