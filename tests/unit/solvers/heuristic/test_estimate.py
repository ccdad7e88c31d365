"""Estimates of many cuts at once."""

import numpy as np
import pytest
from hypothesis import given, settings

from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import arrangement_of, assemble
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.heuristic.estimate import estimated_times
from stagecut.planner.solvers.heuristic.local_search import sequence_of
from stagecut.planner.solvers.heuristic.moves import neighbouring_cuts
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import WEIGHTS_ONLY, chain, job, one_device_per_server
from tests.property.strategies import problems

LINEAR = ("busy", "fill", "sync", "drain", "pair", "link", "flush")
"""The rows that estimates have in full; of late rows they have the loop of one stage only, of queues none."""


@settings(max_examples=80)
@given(problems())
def test_estimates_lie_between_the_linear_rows_and_the_simulated_time(problem):
    """A plan and its neighbours; infinite exactly where the neighbour is no plan."""
    plan = run(problem, "greedy", SolveOptions(time_limit_s=None)).plan
    if plan is None:
        return
    costs = CostModel(problem).of(plan.share)
    sequence, stops = sequence_of(StageTables(costs), plan.variant, arrangement_of(costs, plan))
    cuts = np.concatenate([stops[None], neighbouring_cuts(stops)])
    for cut, estimate_s in zip(cuts, estimated_times(sequence, cuts), strict=True):
        other = assemble(costs, plan.variant, sequence.arrangement(cut))
        assert (other is None) == np.isinf(estimate_s)
        if other is not None:
            found = costs.plan(other)
            assert estimate_s >= lower_bound(found, LINEAR) * (1 - 1e-9)
            assert estimate_s <= iteration_times([found])[0] * (1 + 1e-9)


@settings(max_examples=20)
@given(problems(sliced=True, max_micro_batches=5))
def test_estimates_hold_for_any_number_of_halves(problem):
    """Not below the linear rows for any sliced warm-up count, and not above the time with the best one."""
    plan = run(problem, "even", SolveOptions(time_limit_s=None)).plan
    if plan is None:
        return
    costs = CostModel(problem).of(plan.share)
    sequence, stops = sequence_of(StageTables(costs), plan.variant, arrangement_of(costs, plan))
    (estimate_s,) = estimated_times(sequence, stops[None])
    numbers = costs.plan(plan)
    assert estimate_s >= lower_bound(numbers, LINEAR, any_slicing=True) * (1 - 1e-9)
    counts = range(plan.num_microbatches + 1)
    assert estimate_s <= iteration_times([numbers.sliced(count) for count in counts]).min() * (1 + 1e-9)


def test_empty_stages_and_those_over_memory_are_infinite():
    """Two devices of 3 bytes, four layers of 1 byte each."""
    problem = Problem(
        model=chain(4, {"gpu": 1.0}, params_bytes=2.0),
        cluster=one_device_per_server("gpu", "gpu", memory_bytes=3.0),
        job=job(1, optimizer=WEIGHTS_ONLY),
    )
    groups = [PlacedGroup(placement=Placement(server_class=index, island=0), opens=True) for index in (0, 1)]
    sequence = SequenceCosts(StageTables(CostModel(problem)), problem.variants[0], groups)
    times_s = estimated_times(sequence, np.array([[0, 4], [1, 4], [2, 4], [4, 4]]))
    assert times_s.tolist() == [np.inf, pytest.approx(4.0), pytest.approx(4.0), np.inf]


def test_no_cuts_have_no_estimates():
    problem = Problem(model=chain(1, {"gpu": 1.0}), cluster=one_device_per_server("gpu"), job=job(1))
    group = PlacedGroup(placement=Placement(server_class=0, island=0), opens=True)
    sequence = SequenceCosts(StageTables(CostModel(problem)), problem.variants[0], [group])
    assert len(estimated_times(sequence, np.zeros((0, 1), dtype=np.int64))) == 0
