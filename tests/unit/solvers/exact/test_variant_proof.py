"""The bound of a single variant, step by step, by labels and by the mixed-integer program."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.result import Status
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.labels import counted_paths
from stagecut.planner.network.rows import SHARED_FAMILIES
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact import mip_rounds
from stagecut.planner.solvers.exact.milp import VariantProof
from stagecut.planner.solvers.exact.shared_rows import SharedRowsProof
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.property.strategies import problems

ROUNDING = 1e-9
SMALL = problems(max_layers=4, max_devices=4, max_micro_batches=4)
MOST_STEPS = 40


def plan_costs(problem):
    """Costs of every plan of the last variant."""
    costs = CostModel(problem)
    return [costs.plan(plan) for plan in all_plans(problem, costs) if plan.variant == problem.variants[-1]]


def steps(search, part):
    """The bound after every step, as long as it may still rise."""
    parts, proven_s = [part], math.inf
    for _ in range(MOST_STEPS):
        parts.sort(key=lambda part: part.bound_s)
        if not parts or parts[0].is_stuck or parts[0].bound_s == math.inf:
            break
        outcome = parts.pop(0).step(search)
        parts += outcome.parts
        proven_s = min(proven_s, outcome.proven_s)
        yield min([proven_s, *(part.bound_s for part in parts)])


@settings(max_examples=50)
@given(SMALL)
def test_bound_of_the_shared_rows_only_rises_and_ends_at_their_least_value(problem):
    search = Search(problem, SolveOptions(gap=0.0, time_limit_s=None, rows=RowChoice.SHARED))
    least_s = min((lower_bound(costs, SHARED_FAMILIES) for costs in plan_costs(problem)), default=math.inf)
    proof, before_s = SharedRowsProof(problem.variants[-1]), 0.0
    for bound_s in steps(search, proof):
        assert before_s <= bound_s <= least_s * (1 + ROUNDING)
        before_s = bound_s
    if search.best_s < math.inf:
        assert proof.row_bound_s == pytest.approx(least_s, rel=ROUNDING, abs=0.0)


@pytest.mark.parametrize("easy_arcs", [0, mip_rounds.EASY_ARCS])
@settings(max_examples=25)
@given(problem=SMALL, gap=st.sampled_from((0.0, 1e-3, 0.1)))
def test_bound_of_all_rows_only_rises_and_never_above_a_plan_not_simulated(easy_arcs, problem, gap):
    """Branching on labels to the end, or programs where few arcs are left; no plan is known to begin with."""
    times = iteration_times(costs) if (costs := plan_costs(problem)) else ()
    search, before_s = Search(problem, SolveOptions(gap=gap, time_limit_s=None)), 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mip_rounds, "EASY_ARCS", easy_arcs)
        for bound_s in steps(search, VariantProof(problem.variants[-1], 0.0)):
            assert before_s <= bound_s
            assert min(bound_s, search.best_s) <= min(times, default=math.inf) * (1 + ROUNDING)
            before_s = bound_s


@settings(max_examples=25)
@given(SMALL)
def test_probing_alone_finds_the_least_shared_rows(problem):
    """No network counts as easy: cutoffs are probed one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mip_rounds, "EASY_ARCS", 0)
        probed = run(problem, "milp", SolveOptions(gap=0.0, time_limit_s=None, rows=RowChoice.SHARED))
    labels = run(problem, "dp", SolveOptions(time_limit_s=None))
    assert (probed.status is Status.INFEASIBLE) == (labels.status is Status.INFEASIBLE)
    if labels.row_bound_s is not None:
        assert probed.row_bound_s == pytest.approx(labels.row_bound_s, rel=ROUNDING, abs=0.0)


@settings(max_examples=25)
@given(SMALL, st.sampled_from((0.0, 1e-3)))
def test_without_labels_the_gap_is_reached_all_the_same(problem, gap):
    """Labels would not fit in memory; single arcs, branching and programs are left."""
    whole = run(problem, "milp", SolveOptions(gap=0.0, time_limit_s=None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_paths, "MAX_STATES", 0)
        alone = run(problem, "milp", SolveOptions(gap=gap, time_limit_s=None))
    assert alone.status is whole.status
    if whole.plan is not None:
        assert whole.objective_s * (1 - ROUNDING) <= alone.objective_s
        assert alone.objective_s * (1 - gap) <= whole.objective_s * (1 + ROUNDING)
        assert (alone.bound_s or 0.0) <= whole.objective_s * (1 + ROUNDING)


def test_probes_rise():
    assert all(low < high for low, high in itertools.pairwise(mip_rounds.PROBES))
