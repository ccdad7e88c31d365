"""Action lists of the schedules."""

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.simulator.action_lists import interleaved_actions, pipeline_actions, stage_actions


def written(actions):
    """An action as text, for example `F0-2`: the forward of the samples [0, 2)."""
    return " ".join(f"{action.op}{action.lo}-{action.hi}" for action in actions)


def test_one_forward_one_backward_alternate_after_the_warmup():
    """Stage of warm-up depth 2, four micro-batches."""
    (actions,) = pipeline_actions([2], 4)
    assert written(actions) == "F0-1 F1-2 B0-1 F2-3 B1-2 F3-4 B2-3 B3-4"


def test_gpipe_runs_all_forwards_first():
    (actions,) = pipeline_actions([3], 3)
    assert written(actions) == "F0-1 F1-2 F2-3 B0-1 B1-2 B2-3"


def test_warmup_depth_beyond_the_micro_batches_means_all_of_them():
    assert pipeline_actions([9], 3) == pipeline_actions([3], 3)


def test_ranges_count_samples():
    """Two micro-batches of four samples."""
    (actions,) = pipeline_actions([1], 2, micro_batch=4)
    assert written(actions) == "F0-4 B0-4 F4-8 B4-8"


def test_each_stage_is_given_its_own_number():
    assert [{action.stage for action in actions} for actions in pipeline_actions([3, 2, 1], 4)] == [{0}, {1}, {2}]


def test_halved_forwards_fill_the_same_depth():
    """Two samples in flight: two halves, then whole micro-batches of two."""
    actions = stage_actions(0, [1, 1, 2], [2, 2], depth=2)
    assert written(actions) == "F0-1 F1-2 B0-2 F2-4 B2-4"


def test_a_backward_larger_than_the_depth_waits_for_its_own_forwards():
    actions = stage_actions(0, [1, 1, 1], [3], depth=1)
    assert written(actions) == "F0-1 F1-2 F2-3 B0-3"


@pytest.mark.parametrize(("micro_batches", "micro_batch"), [(0, 1), (1, 0)])
def test_counts_below_one_are_rejected(micro_batches, micro_batch):
    with pytest.raises(BadInputError, match="at least 1"):
        pipeline_actions([1], micro_batches, micro_batch)


def stages_written(actions):
    """An action as text, for example `F2.0`: the forward of the first micro-batch on stage 2."""
    return " ".join(f"{action.op}{action.stage}.{action.lo}" for action in actions)


def test_chunks_take_turns_in_rounds_of_as_many_micro_batches_as_device_groups():
    """Two groups, two chunks: warm-up forwards 2 (2 - d - 1) + 2 = 4 and 2."""
    first, second = interleaved_actions(2, 2, 4)
    assert stages_written(first) == ("F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3")
    assert stages_written(second) == ("F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 B3.2 F3.3 B3.3 B1.2 B1.3")


def test_chunks_of_one_device_group_follow_one_another():
    """One group of three chunks, warm-up 2: the third forward is that of the last chunk, its backward comes next."""
    (actions,) = interleaved_actions(1, 3, 2)
    assert stages_written(actions) == "F0.0 F1.0 F2.0 B2.0 F0.1 B1.0 F1.1 B0.0 F2.1 B2.1 B1.1 B0.1"


def test_micro_batches_that_do_not_fill_the_last_round_are_rejected():
    with pytest.raises(BadInputError, match="num_microbatches must be a multiple of the 4 device groups, got 6"):
        interleaved_actions(4, 2, 6)
