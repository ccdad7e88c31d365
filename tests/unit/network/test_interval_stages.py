"""Stages as intervals of layers, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.interval_network import build_intervals
from tests.catalogue import fast_and_slow

NO_PRICES = np.zeros(3)


def intervals_of(problem, **limits):
    return build_intervals(CostModel(problem), problem.variants[0], **limits)


def test_each_host_can_hold_either_layer():
    """Memory for one of two layers, so no stage has both."""
    intervals = intervals_of(fast_and_slow())
    assert [list(zip(*(each.tolist() for each in pair), strict=True)) for pair in intervals.intervals()] == [
        [(0, 1), (1, 2)],
        [(0, 1), (1, 2)],
    ]
    assert len(intervals) == 4
    assert intervals.limits.tolist() == [1.0, 1.0, -1.0]


def test_the_shortest_path_takes_the_fast_host_twice_until_it_is_dear():
    """2 x 1 s and two fast hosts; at 3 s a host, the slow one twice: 6 s; a stage counts as -1."""
    intervals = intervals_of(fast_and_slow())
    length, used = intervals.shortest(NO_PRICES)
    assert (length, used.tolist()) == (2.0, [2.0, 0.0, -2.0])
    length, used = intervals.shortest(np.array([3.0, 0.0, 0.0]))
    assert (length, used.tolist()) == (6.0, [0.0, 2.0, -2.0])


@pytest.mark.parametrize(("limit_s", "left"), [(3.9, 0), (4.1, 4)])
def test_prices_show_what_one_host_of_each_kind_takes(limit_s, left):
    """At 2 s a fast host, any two stages take 6 s with what they pay, less 2 for the fast host that there is: 4 s."""
    assert len(intervals_of(fast_and_slow()).without_late(np.array([2.0, 0.0, 0.0]), limit_s)) == left


def test_stages_longer_than_the_limit_are_not_there():
    """1 and 3 s a layer."""
    assert [len(start) for start, _ in intervals_of(fast_and_slow(), longest_s=2.0).intervals()] == [2, 0]


def test_without_any_device_group_there_is_no_path():
    """Two replicas do not fit on one device."""
    problem = fast_and_slow()
    job = replace(problem.job, micro_batches=(2,), global_batch=2, replicas=(2,))
    intervals = intervals_of(replace(problem, job=job))
    assert len(intervals.without_late(NO_PRICES, 10.0)) == 0
    assert math.isinf(intervals.shortest(NO_PRICES)[0])
