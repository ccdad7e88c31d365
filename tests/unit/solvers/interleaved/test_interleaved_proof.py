"""The bound of single interleaved variants."""

import math
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings

from stagecut.planner.core.result import Status
from stagecut.planner.network.rows import SHARED_FAMILIES
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.interleaved import branching, proof
from stagecut.planner.solvers.interleaved.proof import InterleavedProof
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import INTERLEAVED, chain
from tests.property.strategies import problems
from tests.unit.solvers.interleaved.test_interleaved_shapes import interleaved

ROUNDING = 1e-9
EXACT = SolveOptions(gap=0.0, time_limit_s=None)


def steps(proof):
    """Bounds after each step, until nothing is left to do."""
    for _ in range(10_000):
        before_s = proof.bound_s, proof._search.best_s
        yield proof.bound_s
        if proof.bound_s == math.inf or proof.row_bound_s is not None or proof._search.closed:
            return
        proof.advance()
        proof._search.raise_bound(min(proof.bound_s, proof._search.best_s))
        assert proof.bound_s >= before_s[0]
    raise AssertionError("no end")


@settings(max_examples=30)
@given(problems(max_layers=6, max_micro_batches=6).map(interleaved))
def test_bound_of_a_variant_ends_at_its_fastest_plan(problem):
    search = Search(problem, EXACT)
    variant = problem.variants[0]
    plans = [plan for plan in all_plans(problem, search.costs) if plan.variant == variant]
    least_s = min(iteration_times([search.costs.plan(plan) for plan in plans]), default=math.inf)
    for bound_s in steps(InterleavedProof(search, variant)):
        assert bound_s <= least_s * (1 + ROUNDING)
    assert search.best_s == pytest.approx(least_s, rel=ROUNDING)


@settings(max_examples=30)
@given(problems(max_layers=6, max_micro_batches=6).map(interleaved))
def test_least_shared_rows_of_a_variant_are_found(problem):
    search = Search(problem, SolveOptions(gap=0.0, time_limit_s=None, rows=RowChoice.SHARED))
    variant = problem.variants[0]
    plans = [plan for plan in all_plans(problem, search.costs) if plan.variant == variant]
    least_s = min((lower_bound(search.costs.plan(plan), SHARED_FAMILIES) for plan in plans), default=math.inf)
    proof = InterleavedProof(search, variant)
    for _ in range(10_000):
        if proof.row_bound_s is not None or proof.bound_s == math.inf:
            break
        proof.advance()
    assert (proof.bound_s if proof.row_bound_s is None else proof.row_bound_s) == pytest.approx(least_s, rel=ROUNDING)


def test_catalogue_optimum_is_proven():
    result = run(INTERLEAVED.problem, "milp", EXACT)
    assert (result.status, result.objective_s) == (Status.OPTIMAL, INTERLEAVED.optimum_s)
    assert result.bound_s == pytest.approx(INTERLEAVED.optimum_s, rel=ROUNDING)


def test_more_nodes_than_can_be_kept_end_the_search_with_a_gap(monkeypatch):
    """12 layers of 2 s on two devices cannot be done in less than 4 x 12 s, to say nothing of filling the pipeline."""
    monkeypatch.setattr(branching, "MAX_NODES", 0)
    monkeypatch.setattr(proof, "MAX_BATCHES", 1)
    problem = replace(INTERLEAVED.problem, model=chain(12, {"gpu": 2.0}))
    problem = replace(problem, job=replace(problem.job, chunks=(3,)))
    result = run(problem, "milp", EXACT)
    assert result.status is Status.FEASIBLE
    assert 48.0 <= result.bound_s < result.objective_s


def test_cancelled_before_the_start_is_an_interruption():
    cancelled = threading.Event()
    cancelled.set()
    result = run(INTERLEAVED.problem, "milp", EXACT, cancelled=cancelled)
    assert (result.status, result.plan) == (Status.INTERRUPTED, None)


@pytest.mark.parametrize("time_limit_s", [1e-9, 5e-3, 5e-2])
def test_whatever_the_time_the_bound_holds(time_limit_s):
    result = run(INTERLEAVED.problem, "milp", SolveOptions(gap=0.0, time_limit_s=time_limit_s))
    assert result.bound_s is None or result.bound_s <= INTERLEAVED.optimum_s * (1 + ROUNDING)


def test_same_options_give_the_same_answer():
    first, second = (run(INTERLEAVED.problem, "milp", EXACT) for _ in range(2))
    assert (first.plan, first.counts, first.bound_s) == (second.plan, second.counts, second.bound_s)
