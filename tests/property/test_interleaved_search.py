"""The search for interleaved plans agrees with enumeration, alone and beside the other schedules."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.registry import run
from tests.property.strategies import SCHEDULES, problems
from tests.property.test_exact_solvers import EXACT, EXACT_SHARED, ROUNDING, check_against, same

ALONE = (Schedule.INTERLEAVED,)
MIXES = st.sampled_from((ALONE, ALONE, (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED), (*SCHEDULES, *ALONE)))


def with_schedules(problem, schedules):
    return replace(problem, job=replace(problem.job, schedules=schedules))


@settings(max_examples=35)
@given(problems(max_layers=7, max_micro_batches=6, interleaved=True), MIXES)
def test_milp_finds_the_optimum_of_brute_force(problem, schedules):
    problem = with_schedules(problem, schedules)
    oracle, result = run(problem, "brute-force", EXACT), run(problem, "milp", EXACT)
    check_against(oracle, result, problem)
    if oracle.plan is not None:
        assert result.status is Status.OPTIMAL
        assert result.objective_s == same(oracle.objective_s)
        assert result.bound_s == same(oracle.objective_s)


@settings(max_examples=15)
@given(problems(max_layers=7, max_micro_batches=6, interleaved=True), MIXES, st.sampled_from((1e-4, 0.02, 0.3)))
def test_optimal_is_claimed_within_the_gap_only(problem, schedules, gap):
    problem = with_schedules(problem, schedules)
    oracle, result = run(problem, "brute-force", EXACT), run(problem, "milp", replace(EXACT, gap=gap))
    check_against(oracle, result, problem)
    if oracle.plan is not None:
        assert result.status is Status.OPTIMAL
        assert result.gap <= gap + ROUNDING


@settings(max_examples=15)
@given(problems(max_layers=6, max_micro_batches=6, interleaved=True), MIXES)
def test_least_shared_rows_are_a_weaker_bound(problem, schedules):
    problem = with_schedules(problem, schedules)
    whole, shared = run(problem, "milp", EXACT), run(problem, "milp", EXACT_SHARED)
    check_against(whole, shared, problem)
    assert (shared.row_bound_s is None) == (whole.plan is None)
    if shared.row_bound_s is not None:
        assert (shared.bound_s or 0.0) == pytest.approx(shared.row_bound_s, rel=ROUNDING)
        assert shared.row_bound_s <= whole.objective_s * (1 + ROUNDING)
