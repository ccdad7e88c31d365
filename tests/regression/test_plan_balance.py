"""How evenly stages compute."""

import math

import pytest

from benchmarks.harness.plan_balance import stage_balance
from stagecut.planner.core.schedule import Schedule
from tests.pipelines import pipeline_costs


def test_balance_is_of_forward_and_backward_together():
    """F + B = 3, 5, 7: mean 5, squared deviations 4 + 0 + 4 over 3 stages."""
    std_s, max_over_mean = stage_balance(pipeline_costs([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], 9.0, micro_batches=4))
    assert std_s == pytest.approx(math.sqrt(8 / 3))
    assert max_over_mean == pytest.approx(7 / 5)


def test_equal_stages_are_in_perfect_balance():
    assert stage_balance(pipeline_costs([1.0, 2.0], [2.0, 1.0], micro_batches=4)) == (0.0, 1.0)


def test_stages_that_take_turns_count_together():
    """Stages of 2, 4, 6, 4 s, the first and third on one device group: 8 and 8."""
    costs = pipeline_costs(
        [1.0, 2.0, 3.0, 2.0], [1.0, 2.0, 3.0, 2.0], micro_batches=4, schedule=Schedule.INTERLEAVED, chunks=2
    )
    assert stage_balance(costs) == (0.0, 1.0)


def test_stages_without_work_are_in_balance():
    assert stage_balance(pipeline_costs([0.0, 0.0], [0.0, 0.0], micro_batches=1)) == (0.0, 1.0)
