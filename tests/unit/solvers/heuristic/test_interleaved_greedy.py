"""Good interleaved plans in seconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.heuristic.interleaved_greedy import equal_share_stops, offer_interleaved
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, INTERLEAVED
from tests.property.strategies import problems
from tests.unit.solvers.interleaved.test_interleaved_shapes import interleaved

UNLIMITED_TIME = SolveOptions(time_limit_s=None)


def test_known_optimum_is_found():
    assert run(INTERLEAVED.problem, "greedy", UNLIMITED_TIME).objective_s == INTERLEAVED.optimum_s


def test_other_jobs_get_no_interleaved_plans():
    search = Search(CATALOGUE[0].problem, UNLIMITED_TIME)
    offer_interleaved(search)
    assert search.best_plan is None


def test_same_problem_gives_the_same_plan():
    problem = replace(INTERLEAVED.problem, job=replace(INTERLEAVED.problem.job, chunks=(1, 2)))
    first, second = (run(problem, "greedy", UNLIMITED_TIME) for _ in range(2))
    assert (first.plan, first.counts) == (second.plan, second.counts)


def test_boundaries_are_those_nearest_to_equal_work():
    """Work 1, 1, 1, 1, 4 in two stages: half of it is before the last layer."""
    assert equal_share_stops(np.array([0.0, 1, 2, 3, 4, 8]), 2).tolist() == [4, 5]


@given(st.data())
def test_every_stage_has_a_layer_and_the_last_one_ends_the_model(data):
    layers = data.draw(st.lists(st.sampled_from((0.0, 1.0, 7.0)), min_size=1, max_size=9))
    num_stages = data.draw(st.integers(1, len(layers)))
    stops = equal_share_stops(np.cumsum([0.0, *layers]), num_stages)
    assert (np.diff(stops, prepend=0) > 0).all()
    assert (len(stops), stops[-1]) == (num_stages, len(layers))


@settings(max_examples=30)
@given(problems(max_layers=6, max_micro_batches=4).map(interleaved))
def test_plans_are_legal_and_never_beat_the_optimum(problem):
    found, best = run(problem, "greedy", UNLIMITED_TIME), run(problem, "brute-force", UNLIMITED_TIME)
    assume(found.plan is not None)
    assert faults(CostModel(problem), found.plan) == ()
    assert found.objective_s >= best.objective_s * (1 - 1e-9)


@pytest.mark.parametrize("time_limit_s", [1e-9, 2e-3])
def test_without_time_it_ends_at_once(time_limit_s):
    result = run(INTERLEAVED.problem, "greedy", SolveOptions(time_limit_s=time_limit_s))
    assert result.plan is None or faults(CostModel(INTERLEAVED.problem), result.plan) == ()
