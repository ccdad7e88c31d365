"""The mixed-integer program: budgets, gaps, and the bound of single variants."""

import itertools
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings

from planner.core.result import Status
from planner.core.schedule import Schedule
from planner.cost.cost_model import CostModel
from planner.cost.legality import faults
from planner.network import counted_paths
from planner.network.rows import build_rows
from planner.network.stage_network import build_network
from planner.solvers import variant_proof
from planner.solvers.options import RowChoice, SolveOptions
from planner.solvers.registry import run
from planner.solvers.search import Search
from planner.solvers.variant_proof import VariantProof
from tests.catalogue import CATALOGUE
from tests.property.strategies import problems
from tests.unit.network.enumeration import plan_paths

ROUNDING = 1e-9
HETEROGENEOUS = next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain")
FEASIBLE = [known for known in CATALOGUE if known.optimum_s is not None]


def by_name(known):
    return known.name


@pytest.mark.parametrize("time_limit_s", [1e-9, 2e-3, 2e-2])
@pytest.mark.parametrize("known", FEASIBLE, ids=by_name)
def test_whatever_the_time_the_answer_is_legal_and_its_bound_holds(known, time_limit_s):
    result = run(known.problem, "milp", SolveOptions(time_limit_s=time_limit_s))
    assert result.status in {Status.NO_PLAN, Status.FEASIBLE, Status.OPTIMAL}
    assert (result.plan is None) == (result.status is Status.NO_PLAN) == (result.objective_s is None)
    assert result.plan is None or faults(CostModel(known.problem), result.plan) == ()
    assert result.objective_s is None or result.objective_s >= known.optimum_s
    assert result.bound_s is None or result.bound_s <= known.optimum_s * (1 + ROUNDING)


@pytest.mark.parametrize("rows", RowChoice)
@pytest.mark.parametrize("known", CATALOGUE, ids=by_name)
def test_cancelled_before_the_start_is_an_interruption(known, rows):
    cancelled = threading.Event()
    cancelled.set()
    result = run(known.problem, "milp", SolveOptions(rows=rows), cancelled=cancelled)
    assert (result.status, result.plan, result.bound_s, result.row_bound_s) == (Status.INTERRUPTED, None, None, None)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_cancelled_search_keeps_its_best_plan(steps):
    """The event is set by one of the first improvements."""
    cancelled, seen = threading.Event(), []

    def cancel_later(point):
        seen.append(point)
        if len(seen) == steps:
            cancelled.set()

    result = run(HETEROGENEOUS, "milp", SolveOptions(gap=0.0), observer=cancel_later, cancelled=cancelled)
    assert result.status in {Status.INTERRUPTED, Status.OPTIMAL}
    assert result.objective_s == seen[-1].objective_s
    assert faults(CostModel(HETEROGENEOUS), result.plan) == ()


@pytest.mark.parametrize("gap", [0.0, 1e-4, 0.05, 0.5])
@pytest.mark.parametrize("known", FEASIBLE, ids=by_name)
def test_optimal_means_within_the_gap(known, gap):
    result = run(known.problem, "milp", SolveOptions(gap=gap, time_limit_s=None))
    assert result.status is Status.OPTIMAL
    assert result.gap <= gap + ROUNDING
    assert result.bound_s <= known.optimum_s * (1 + ROUNDING)
    assert known.optimum_s <= result.objective_s <= known.optimum_s * (1 + ROUNDING) / (1 - gap)


@pytest.mark.parametrize("known", FEASIBLE, ids=by_name)
def test_optimum_of_the_shared_rows_is_the_bound(known):
    result = run(known.problem, "milp", SolveOptions(rows=RowChoice.SHARED, time_limit_s=None))
    assert result.row_bound_s is not None
    assert result.bound_s == pytest.approx(result.row_bound_s, rel=ROUNDING)
    assert result.row_bound_s <= known.optimum_s * (1 + ROUNDING)


def test_every_schedule_is_searched_in_one_run():
    """Two equal devices: 20 s under any of them."""
    problem = replace(HETEROGENEOUS, job=replace(HETEROGENEOUS.job, schedules=tuple(Schedule)))
    result = run(problem, "milp", SolveOptions(gap=0.0, time_limit_s=None))
    assert (result.status, result.objective_s) == (Status.OPTIMAL, 20.0)


def test_same_options_give_the_same_answer():
    first, second = (run(HETEROGENEOUS, "milp", SolveOptions(gap=0.0, time_limit_s=None)) for _ in range(2))
    assert replace(first, seconds=0.0, history=()) == replace(second, seconds=0.0, history=())


@settings(max_examples=50)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=4))
def test_bound_of_a_variant_only_rises_and_never_above_its_plans(problem):
    """In the shared rows, whose least value over the plans is the bound in the end."""
    search = Search(problem, SolveOptions(gap=0.0, time_limit_s=None, rows=RowChoice.SHARED))
    variant = problem.variants[0]
    rows = build_rows(build_network(search.costs, variant), shared_only=True)
    least_s = min(map(rows.value, plan_paths(rows.network)), default=float("inf"))
    proof, before_s = VariantProof(search, variant), 0.0
    for _ in range(30):
        if proof.row_bound_s is not None or proof.bound_s == float("inf"):
            break
        proof.advance()
        assert before_s <= proof.bound_s <= least_s * (1 + ROUNDING)
        before_s = proof.bound_s
    if search.best_s < float("inf"):
        assert proof.row_bound_s == pytest.approx(least_s, rel=ROUNDING, abs=0.0)


@settings(max_examples=25)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=4))
def test_probing_and_exclusion_alone_find_the_optimum(problem):
    """Labels are refused, and no network counts as easy: cutoffs are probed, and plans excluded one by one."""
    whole = run(problem, "milp", SolveOptions(gap=0.0, time_limit_s=None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_paths, "MAX_LABELS", 0)
        patch.setattr(variant_proof, "EASY_ARCS", 0)
        probed = run(problem, "milp", SolveOptions(gap=0.0, time_limit_s=None))
    assert probed.status is whole.status
    if whole.plan is not None:
        assert probed.objective_s == pytest.approx(whole.objective_s, rel=ROUNDING, abs=0.0)
        assert probed.bound_s == whole.bound_s or probed.bound_s == pytest.approx(whole.bound_s, rel=ROUNDING)


def test_probes_rise():
    assert all(low < high for low, high in itertools.pairwise(variant_proof.PROBES))
