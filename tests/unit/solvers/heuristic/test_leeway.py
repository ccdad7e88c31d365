"""How much longer than the last stage earlier ones may take."""

import pytest

from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.heuristic.leeway import leeways


def _leeways(schedule, *, num_microbatches, num_stages=3, forward_share=1 / 3):
    variant = Variant(schedule=schedule, micro_batch=1, num_microbatches=num_microbatches)
    return leeways(variant, num_stages, forward_share).tolist()


@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.GPIPE])
def test_no_stage_may_be_slower_where_all_wait_for_the_slowest(schedule):
    assert _leeways(schedule, num_microbatches=11) == [1.0, 1.0, 1.0]


def test_the_first_stages_may_be_slower_under_eager_1f1b():
    """k = 5, 3, 1 and M = 11: fill 10 / (10 - 4/3), 10 / (10 - 2/3); busy 1.2, 1.1; late 7/5, 8/7."""
    expected = [10 / (10 - 4 / 3), 10 / (10 - 2 / 3), 1.0]
    assert _leeways(Schedule.EAGER_ONE_F_ONE_B, num_microbatches=11) == pytest.approx(expected)


def test_a_single_micro_batch_passes_all_stages_alike():
    assert _leeways(Schedule.EAGER_ONE_F_ONE_B, num_microbatches=1) == [1.0, 1.0, 1.0]


def test_fill_leaves_any_leeway_to_a_stage_whose_backwards_take_no_time():
    """M = 3, k = 3, 3, 1: busy 2, 3/2."""
    assert _leeways(Schedule.EAGER_ONE_F_ONE_B, num_microbatches=3, forward_share=1.0) == [2.0, 1.5, 1.0]
