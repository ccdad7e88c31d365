"""Stages of equally many parameters."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.papers.deepspeed_parameters import layer_params, lightest_stops
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import chain, job, layer, one_server
from tests.property.strategies import problems

OPTIONS = SolveOptions(time_limit_s=None)


def _solved(problem):
    return run(problem, "deepspeed-parameters", OPTIONS)


def _heaviest(weights, stops):
    return max(sum(weights[start:stop]) for start, stop in itertools.pairwise((0, *stops)))


@given(st.lists(st.sampled_from((0.0, 0.1, 0.2, 0.7, 1.0, 3.0)), min_size=1, max_size=9), st.data())
def test_heaviest_stage_is_as_light_as_of_any_cut(weights, data):
    num_stages = data.draw(st.integers(1, len(weights)))
    stops = lightest_stops(np.array(weights), num_stages)
    cuts = [(*inner, len(weights)) for inner in itertools.combinations(range(1, len(weights)), num_stages - 1)]
    assert len(stops) == num_stages
    assert all(start < stop for start, stop in itertools.pairwise((0, *stops)))
    assert _heaviest(weights, stops) == pytest.approx(min(_heaviest(weights, cut) for cut in cuts), rel=1e-9)


def test_first_stages_are_filled_up():
    """3 1 2 1 1 on two stages: 3 + 1 and 2 + 1 + 1 are both 4; 3 alone leaves 5."""
    assert lightest_stops(np.array([3.0, 1.0, 2.0, 1.0, 1.0]), 2) == [2, 5]


def test_layers_without_parameters_are_counted():
    assert lightest_stops(np.zeros(6), 3) == [2, 4, 6]


def test_times_play_no_part():
    """The first layer has half of all parameters and hardly any work: it is alone all the same."""
    layers = (
        layer("embedding", {"gpu": 0.1}, params_bytes=60.0),
        *(layer(f"block{index}", {"gpu": 1.0}, params_bytes=20.0) for index in range(3)),
    )
    problem = Problem(model=ModelProfile(name="top-heavy", layers=layers), cluster=one_server("gpu", 2), job=job(4))
    result = _solved(problem)
    assert [stage.stop for stage in result.plan.stages] == [1, 4]
    # fp16: 60 bytes are 30 parameters.
    assert (result.own_objective.name, result.own_objective.value) == ("parameters of the largest stage", 30.0)


def test_shared_parameters_count_in_both_layers():
    layers = (layer("a", {"gpu": 1.0}, params_bytes=4.0), layer("b", {"gpu": 1.0}, shared_params_bytes=4.0))
    assert layer_params(ModelProfile(name="tied", layers=layers)).tolist() == [2.0, 2.0]


@settings(max_examples=40)
@given(problems(max_layers=6))
def test_plans_are_legal(problem):
    problem = replace(problem, job=replace(problem.job, schedules=(Schedule.ONE_F_ONE_B,)))
    try:
        result = _solved(problem)
    except UnsupportedError:
        reject()
    assume(result.plan is not None)
    assert faults(CostModel(problem), result.plan) == ()
    assert all(stage.tensor_parallel == 1 for stage in result.plan.stages)
    params = layer_params(problem.model)
    stops = [stage.stop for stage in result.plan.stages]
    assert result.own_objective.value == pytest.approx(_heaviest(params, stops))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"schedule": Schedule.GPIPE}, "supports only schedule 1f1b, but the job allows gpipe"),
        ({"tensor_parallel": (2,)}, "does not support tensor parallelism, but the job requires degree 2; allow 1"),
    ],
)
def test_what_deepspeed_has_not_is_refused(choices, message):
    model = chain(2, {"gpu": 1.0}, tensor_parallel_bytes=1.0)
    with pytest.raises(UnsupportedError, match=message):
        _solved(Problem(model=model, cluster=one_server("gpu", 2), job=job(2, **choices)))
