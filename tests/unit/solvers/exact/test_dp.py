"""The dynamic programme against the enumeration of all plans."""

import math
import threading

import pytest
from hypothesis import given, settings

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.labels import counted_paths
from stagecut.planner.network.rows import SHARED_FAMILIES
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.exact import dp
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, INTERLEAVED, chain, job, kinds
from tests.property.strategies import problems

UNLIMITED_TIME = SolveOptions(time_limit_s=None)


def least_rows(problem):
    costs = CostModel(problem)
    values = (lower_bound(costs.plan(plan), SHARED_FAMILIES) for plan in all_plans(problem, costs))
    return min(values, default=math.inf)


@settings(max_examples=60)
@given(problems(max_layers=6, max_micro_batches=5))
def test_least_rows_of_all_plans_are_found(problem):
    result, least_s = run(problem, "dp", UNLIMITED_TIME), least_rows(problem)
    if math.isinf(least_s):
        assert result.status is Status.INFEASIBLE
    else:
        assert result.row_bound_s == pytest.approx(least_s, rel=1e-9, abs=0.0)
        assert (result.bound_s or 0.0) == pytest.approx(least_s, rel=1e-9, abs=0.0)


@settings(max_examples=40)
@given(problems(max_layers=5, max_micro_batches=5))
def test_labels_too_many_for_memory_leave_a_bound(problem):
    """The bound is what single arcs prove; optimality is claimed only where they rule out everything below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_paths, "MAX_STATES", 0)
        result, least_s = run(problem, "dp", UNLIMITED_TIME), least_rows(problem)
    assert (result.bound_s or 0.0) <= least_s * (1 + 1e-9)
    assert result.row_bound_s is None or result.row_bound_s == pytest.approx(least_s, rel=1e-9, abs=0.0)
    assert (result.status is Status.INFEASIBLE) <= math.isinf(least_s)


class Cramped(Search):
    """A search with little memory left: enough for the network, but not for all labels."""

    room_bytes = 200_000.0


def test_labels_that_memory_has_no_room_for_leave_a_bound():
    """Up to 3 and up to 120 hosts make 484 count states."""
    servers = tuple(
        Server(name=name, count=count, islands=(Island(device_type=name, count=1),))
        for name, count in (("fast", 3), ("slow", 120))
    )
    cluster = Cluster(
        name="many",
        device_types=kinds(fast=math.inf, slow=math.inf),
        servers=servers,
        network=Link(bandwidth_bytes_per_s=3.0, latency_s=0.01),
    )
    model = chain(9, {"fast": 1.0, "slow": 2.5}, output_bytes=1.0)
    problem = Problem(model=model, cluster=cluster, job=job(8))
    roomy, cramped = (dp.solve(problem, kind(problem, UNLIMITED_TIME)) for kind in (Search, Cramped))
    assert roomy.row_bound_s == roomy.bound_s
    assert (cramped.objective_s, cramped.row_bound_s, cramped.fault) == (roomy.objective_s, None, None)
    assert 0 < cramped.bound_s <= roomy.bound_s


@pytest.mark.parametrize("known", CATALOGUE, ids=lambda known: known.name)
def test_without_time_nothing_false_is_claimed(known):
    result = run(known.problem, "dp", SolveOptions(time_limit_s=1e-9))
    assert result.status in {Status.NO_PLAN, Status.FEASIBLE, Status.INFEASIBLE}
    assert (result.status is Status.INFEASIBLE) <= (known.optimum_s is None)
    assert result.bound_s is None or known.optimum_s is None or result.bound_s <= known.optimum_s * (1 + 1e-9)


def test_cancelled_before_the_start_is_an_interruption():
    cancelled = threading.Event()
    cancelled.set()
    result = run(CATALOGUE[0].problem, "dp", SolveOptions(), cancelled=cancelled)
    assert (result.status, result.plan) == (Status.INTERRUPTED, None)


def test_variant_of_the_best_plan_comes_first():
    """Without a plan, variants keep the order of the job."""
    problem = next(known.problem for known in CATALOGUE if known.name == "several pipelines")
    search = Search(problem, SolveOptions())
    single, double = problem.variants
    assert dp.promising_first(problem, search) == [single, double]
    search.offer([next(plan for plan in all_plans(problem) if plan.variant == double)])
    assert dp.promising_first(problem, search) == [double, single]


def test_interleaved_plans_are_refused():
    with pytest.raises(UnsupportedError, match="solver 'dp' does not support schedule interleaved"):
        run(INTERLEAVED.problem, "dp", UNLIMITED_TIME)
