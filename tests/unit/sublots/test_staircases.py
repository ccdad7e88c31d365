"""Staircases and remaining ways of five samples through two processes, by hand.

The first takes 1 + x seconds: sublots of 2 take 3, 3 and 2, and end at 3, 6 and 8. The second one takes x: its
sublots of 3 take 3 and 2; the first begins at 6, when sample 3 is there, and ends at 9, the other ends at 11.
"""

from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.sublots.staircases import arrivals, completions, least_remaining, makespan_s, remaining
from tests.sublot_lines import affine_chain, map_processes

CHAIN = affine_chain([1, 0], [1, 1], 5)
BEHIND_FIRST = [3, 3, 6, 6, 8]
BEHIND_SECOND = [9, 9, 9, 11, 11]


def test_samples_of_a_sublot_leave_together():
    first = completions(CHAIN, 0, 2, arrivals(CHAIN))
    assert first.tolist() == [BEHIND_FIRST]
    assert completions(CHAIN, 1, 3, first).tolist() == [BEHIND_SECOND]
    assert makespan_s(CHAIN, (2, 3)) == 11


def test_staircases_of_many_labels_are_made_at_once():
    """An idle process leaves no trace: the second label arrives 10 s later and leaves as much later."""
    both = completions(CHAIN, 1, 3, np.add.outer([0, 10], BEHIND_FIRST))
    assert both.tolist() == [BEHIND_SECOND, [19, 19, 19, 21, 21]]


def test_the_smaller_sublot_may_come_first():
    """2, 3 and 3 s for 1, 2 and 2 samples."""
    first = completions(replace(CHAIN, partial_first=True), 0, 2, arrivals(CHAIN))
    assert first.tolist() == [[2, 5, 5, 8, 8]]


def test_no_sublot_starts_before_the_release():
    """Of 20 s."""
    late = map_processes(CHAIN, lambda index, each: replace(each, release_s=20.0) if index == 1 else each)
    assert completions(late, 1, 3, np.array([BEHIND_FIRST])).tolist() == [[23, 23, 23, 25, 25]]


def test_the_way_that_remains_is_that_of_the_sublot_and_those_behind_it():
    """From the end: 2, 3 + 2 on the second process; 2 + 2, then 3 + max(4, 5), then 3 + max(8, 5) on the first."""
    second = remaining(CHAIN, 1, 3, np.zeros(5))
    assert second.tolist() == [5, 5, 5, 2, 2]
    assert remaining(CHAIN, 0, 2, second).tolist() == [11, 11, 8, 8, 4]


def test_the_least_way_takes_the_best_size_sample_by_sample():
    """On the second process 5 with 5 samples at once; 5 and 2 by threes."""
    few = map_processes(CHAIN, lambda _, each: replace(each, sizes=(3, 5)))
    first, second, behind = least_remaining(few)
    assert behind.tolist() == [0] * 5
    assert second.tolist() == [5, 5, 5, 2, 2]
    assert first[0] == pytest.approx(min(makespan_s(few, (x, y)) for x in (3, 5) for y in (3, 5)))
