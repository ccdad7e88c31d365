"""Seconds by step."""

import pytest

from stagecut.planner.solvers.search.step_clock import StepClock


class _Ticks:
    """A clock that is one second on at every look."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        self.seconds += 1.0
        return self.seconds


def test_an_inner_step_does_not_count_for_the_outer_one():
    """Looks at 2 (outer opens), 3 (inner opens), 4 (inner closes), 5 (outer closes): 1 + 1 and 1."""
    clock = StepClock(now=_Ticks())
    with clock.step("outer"), clock.step("inner"):
        pass
    assert clock.seconds == (("inner", 1.0), ("outer", 2.0))


def test_a_step_taken_twice_is_summed():
    """1 each."""
    clock = StepClock(now=_Ticks())
    for _ in range(2):
        with clock.step("labels"):
            pass
    assert clock.seconds == (("labels", 2.0),)


def test_a_step_that_fails_counts_up_to_there():
    """The next step is not nested in it."""
    clock = StepClock(now=_Ticks())
    with pytest.raises(ValueError, match="no"), clock.step("first"):
        raise ValueError("no")
    with clock.step("second"):
        pass
    assert clock.seconds == (("first", 1.0), ("second", 1.0))


def test_time_outside_all_steps_counts_for_none():
    """Two looks pass before the step."""
    now = _Ticks()
    clock = StepClock(now=now)
    now()
    now()
    with clock.step("only"):
        pass
    assert clock.seconds == (("only", 1.0),)
