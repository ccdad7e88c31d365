"""Action lists that could not be played are refused with the reason."""

import pytest

from stagecut.executor.manual_plan import plan_of
from stagecut.executor.schedule.checker import check_lists
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.simulator.action_lists import Action, Op, plan_actions, stage_actions

PLAN = plan_of((0, 1, 2), num_microbatches=2, schedule=Schedule.GPIPE)
F, B, I, W = Op  # noqa: E741 the names of the operations


def lists(*of_last: Action) -> list[list[Action]]:
    """The first stage as planned, the last one as given."""
    return [plan_actions(PLAN)[0], list(of_last)]


def complaint(actions: list[list[Action]]) -> str:
    with pytest.raises(BadInputError) as caught:
        check_lists(actions, PLAN)
    return str(caught.value)


def test_a_schedules_own_lists_pass() -> None:
    """Every schedule, and halves of backwards."""
    for schedule in Schedule:
        plan = plan_of((0, 1, 2, 3, 4), schedule=schedule, chunks=2 if schedule is Schedule.INTERLEAVED else 1)
        check_lists(plan_actions(plan), plan)
    split = [Action(F, 1, 0, 2), Action(F, 1, 2, 4), Action(I, 1, 0, 2), Action(I, 1, 2, 4)]
    check_lists(lists(*split, Action(W, 1, 2, 4), Action(W, 1, 0, 2)), PLAN)


def test_missing_samples_are_named() -> None:
    """The last stage leaves samples 2 and 3 out of its backwards."""
    text = complaint(lists(Action(F, 1, 0, 2), Action(F, 1, 2, 4), Action(B, 1, 0, 2)))
    assert "the backwards of stage 1 must cover the samples [0, 4) exactly once, got [0, 2)" in text


def test_a_backward_before_its_forward_is_refused() -> None:
    """Samples 2 and 3 go backward first."""
    text = complaint(lists(Action(F, 1, 0, 2), Action(B, 1, 2, 4), Action(F, 1, 2, 4), Action(B, 1, 0, 2)))
    assert "stage 1 lists the backward of samples [2, 4) before a forward" in text


def test_stages_that_wait_for_each_other_are_named_with_their_actions() -> None:
    """The first stage wants a gradient before it sends the second micro-batch; the last one wants both first."""
    first = stage_actions(0, [2, 2], [2, 2], depth=2)
    last = stage_actions(1, [2, 2], [2, 2], depth=4)
    text = complaint([first, last])
    assert "wait for each other forever" in text
    assert "stage 0 at the backward of samples [0, 2)" in text
    assert "stage 1 at the forward of samples [2, 4)" in text


def test_a_backward_that_cuts_through_a_forward_is_refused() -> None:
    """One graph cannot be undone for two of its four samples."""
    text = complaint(lists(Action(F, 1, 0, 4), Action(B, 1, 0, 2), Action(B, 1, 2, 4)))
    assert "stage 1: backward of samples [0, 2) cuts through the forward of [0, 4)" in text


def test_a_size_of_backwards_that_cuts_through_forwards_is_refused() -> None:
    """Forwards of 4 and backwards of 6 samples: [0, 6) ends inside [4, 8)."""
    plan = plan_of((0, 1, 2), schedule=Schedule.GPIPE, micro_batch=12, num_microbatches=1, sizes=((12, 12), (4, 6)))
    with pytest.raises(
        BadInputError, match=r"stage 1: backward of samples \[0, 6\) cuts through the forward of \[4, 8\)"
    ):
        check_lists(plan_actions(plan), plan)


def test_messages_that_gather_more_than_may_be_in_flight_are_refused() -> None:
    """1F1B keeps two micro-batches of 2 on the first stage, whose messages hold 6 samples."""
    plan = plan_of((0, 1, 2), messages=((6, None),))
    with pytest.raises(
        BadInputError, match=r"wait for each other forever: stage 0 at the backward of samples \[0, 2\)"
    ):
        check_lists(plan_actions(plan), plan)


def test_half_a_backward_needs_the_other_half() -> None:
    """W without I, and I without W."""
    forwards = (Action(F, 1, 0, 4),)
    assert "has no W after it" in complaint(lists(*forwards, Action(I, 1, 0, 4)))
    text = complaint(lists(*forwards, Action(W, 1, 0, 4), Action(I, 1, 0, 4)))
    assert "needs an I of the same samples before it" in text


def test_more_samples_in_flight_than_planned_are_refused() -> None:
    """1F1B plans memory for one micro-batch on the last stage; GPipe's list keeps both."""
    plan = plan_of((0, 1, 2), num_microbatches=2)
    with pytest.raises(BadInputError, match=r"holds 4 samples, but its warm-up depth of 1 x 2 allows 2"):
        check_lists(plan_actions(PLAN), plan)


def test_lists_on_the_wrong_device_group_are_refused() -> None:
    """The lists swapped."""
    assert "device group 0: stages must be [0], got [1]" in complaint(plan_actions(PLAN)[::-1])
