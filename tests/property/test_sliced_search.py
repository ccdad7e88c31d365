"""Halved warm-up micro-batches: no plan is faster than its bounds, and the solvers agree on the search space."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.job import AUTO
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.network.rows import SHARED_FAMILIES, build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.bounds import bound_rows
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.slicing import as_stated, paying_count, searched_bound, slicing_faults
from stagecut.planner.solvers.exact.decision import Decision
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.registry import run
from tests.network_paths import paths_by_plan
from tests.pipelines import random_costs, random_halves, random_routes
from tests.property.strategies import SCHEDULES, problems
from tests.property.test_exact_solvers import EXACT, EXACT_SHARED, check_against, same
from tests.property.test_stage_network import LINEAR_FAMILIES

ROUNDING = 1e-9


def fastest_s(costs, plan):
    """Seconds of a plan with the sliced warm-up count of its job."""
    numbers = costs.plan(as_stated(costs.problem, plan))
    (seconds,) = iteration_times([numbers])
    return paying_count(numbers, float(seconds))[1] if costs.problem.job.slice == AUTO else float(seconds)


def rows_above(costs, seconds, *, any_slicing=False):
    """The families of which some row is above the simulated time."""
    rows = bound_rows(costs, any_slicing=any_slicing)
    return {name: max(row) for name, row in rows.items() if len(row) and max(row) > seconds * (1 + ROUNDING)}


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    stages=st.integers(1, 6),
    micro_batches=st.integers(1, 9),
    schedule=st.sampled_from(SCHEDULES),
    names=st.sampled_from([0, 0, 2, 5]),
    style=st.sampled_from(["real", "whole", "rare"]),
)
def test_no_sliced_pipeline_is_faster_than_any_row(seed, stages, micro_batches, schedule, names, style):
    """Halves of any length from half the whole on, stages that cannot halve, shared links."""
    rng = np.random.default_rng(seed)
    routes = random_routes(rng, 3 * stages - 2, names=names)
    plain = random_costs(rng, routes, schedule=schedule, micro_batches=micro_batches, style=style)
    costs = random_halves(rng, plain, style=style)
    (seconds,) = iteration_times([costs])
    assert rows_above(costs, seconds) == {}
    assert rows_above(costs, seconds, any_slicing=True) == {}


@settings(max_examples=15)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=5, sliced=True))
def test_rows_for_any_count_hold_for_every_count(problem):
    """All plans of a search space with every sliced warm-up count there is."""
    costs = CostModel(problem)
    plans = list(itertools.islice(all_plans(problem, costs), 60))
    assume(plans)
    for plan in plans:
        numbers = costs.plan(plan)
        for num_sliced in range(plan.num_microbatches + 1):
            sliced = numbers.sliced(num_sliced)
            (seconds,) = iteration_times([sliced])
            assert rows_above(sliced, seconds) == {}
            assert rows_above(sliced, seconds, any_slicing=True) == {}


@settings(max_examples=10)
@given(problems(max_layers=5, max_devices=3, max_micro_batches=6, sliced=True))
def test_rows_of_a_path_are_those_of_its_plan(problem):
    """The linear rows over arcs and the formulas over stages agree, for the stated count or for any count."""
    costs = CostModel(problem)
    networks = [with_positions(build_network(costs, variant)) for variant in problem.variants]
    plans = [dict(itertools.islice(paths_by_plan(network).items(), 30)) for network in networks]
    assume(any(plans))
    for network, paths in zip(networks, plans, strict=True):
        rows, shared = build_rows(network), build_rows(network, shared_only=True)
        for plan, path in paths.items():
            for value_s, families in ((rows.value(path), LINEAR_FAMILIES), (shared.value(path), SHARED_FAMILIES)):
                assert value_s == pytest.approx(searched_bound(costs, plan, families), rel=1e-12)


@settings(max_examples=15)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5, sliced=True))
def test_labels_never_rule_out_the_fastest_plan(problem):
    """At the time simulated with the stated or paying count, some path must be left, without positions and with."""
    costs = CostModel(problem)
    least = {}
    for plan in itertools.islice(all_plans(problem, costs), 300):
        seconds = fastest_s(costs, plan)
        least[plan.variant] = min(seconds, least.get(plan.variant, seconds))
    assume(least)
    for variant, seconds in least.items():
        network = build_network(costs, variant)
        for chosen in (network, with_positions(network)):
            assert Decision(build_rows(chosen)).path_below(seconds * (1 + ROUNDING)) is not None


@settings(max_examples=10)
@given(problems(max_layers=6, max_micro_batches=6, sliced=True))
def test_milp_finds_the_optimum_of_brute_force(problem):
    """The search runs to gap 0; the plan has the sliced warm-up count that its job states."""
    oracle, result = run(problem, "brute-force", EXACT), run(problem, "milp", EXACT)
    check_against(oracle, result, problem)
    if oracle.plan is not None:
        assert result.objective_s == same(oracle.objective_s)
        assert result.bound_s == same(oracle.objective_s)
        costs = CostModel(problem)
        assert [*slicing_faults(costs, oracle.plan), *slicing_faults(costs, result.plan)] == []


@settings(max_examples=12)
@given(problems(max_layers=6, max_micro_batches=6, sliced=True))
def test_brute_force_tries_every_plan_with_its_count(problem):
    """The least time over all plans, each with the count of its job."""
    costs = CostModel(problem)
    best_s = min((fastest_s(costs, plan) for plan in all_plans(problem, costs)), default=float("inf"))
    result = run(problem, "brute-force", EXACT)
    assert result.objective_s == (None if best_s == float("inf") else best_s)
    assert result.plan is None or faults(costs, result.plan) == ()


@settings(max_examples=10)
@given(problems(max_layers=6, max_micro_batches=6, sliced=True))
def test_milp_and_dp_agree_on_the_rows_they_share(problem):
    dynamic, shared = run(problem, "dp", EXACT), run(problem, "milp", EXACT_SHARED)
    assert dynamic.row_bound_s == shared.row_bound_s or dynamic.row_bound_s == same(shared.row_bound_s)
