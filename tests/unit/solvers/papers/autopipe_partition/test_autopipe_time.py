"""AutoPipe's time of an iteration."""

import random
from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.solvers.papers.autopipe_partition.time import StageTimes, timings
from tests.chains import alike, all_stops, simulated


def _timing(times, stops, num_microbatches):
    timing = timings(times, np.array([stops]), num_microbatches)
    return float(timing.seconds[0]), int(timing.critical[0])


def test_recurrences_by_hand():
    """F = 1, 2, B = 2, 3, c = 0.5, M = 4: two slots of stage 0, three of stage 1.

    b(1, 0) = 1 + 0.5 + 2 = 3.5, b(0, 0) = 3.5 + 3 + 0.5 = 7. Stage 1 never waits: its forwards start 0.5 after its
    backwards of 3, at 7, 12.5 and 18, with backwards at 9, 14.5 and 20; stage 0 answers at f(0, 1) = 9 and
    f(0, 2) = 12.5 + 2. After the backward at 20: 3, a message of 0.5 and a backward of 2.
    """
    times = alike([1.0, 2.0], [2.0, 3.0], num_stages=2, transfer_s=0.5)
    assert _timing(times, (1, 2), 4) == (25.5, 1)


def test_pipeline_cools_down_behind_the_critical_stage():
    """24 layers of 1 + 2, cut into 5, 5, 5, 5, 4 layers, M = 10.

    b(3, 0) = 24 + 8 = 32; stage 3 is the last of those with 15 and never waits: slot 8 has its forward at
    32 + 7 x 15 + 10 = 147 and its backward at 152. Two backwards are left on it: the first at 152, that of stage 4
    after a forward of 4 at 152 + 4, the last at max(152 + 10, 156 + 8) = 164; then four backwards of 10.
    """
    times = alike([1.0] * 24, [2.0] * 24, num_stages=5)
    assert _timing(times, (5, 10, 15, 20, 24), 10) == (204.0, 3)


def test_heavy_last_stage_is_critical():
    """The case above with 4, 5, 5, 5, 5: nine slots of 15 after 24, then backwards of 4 x 10 + 8."""
    times = alike([1.0] * 24, [2.0] * 24, num_stages=5)
    assert _timing(times, (4, 9, 14, 19, 24), 10) == (207.0, 4)


def test_later_one_of_two_equal_stages_is_critical():
    assert _timing(alike([1.0] * 4, [2.0] * 4, num_stages=2), (2, 4), 4)[1] == 1


def test_single_stage_computes_all_the_time():
    """5 micro-batches of 3 + 4."""
    assert _timing(alike([1.0, 2.0], [3.0, 1.0], num_stages=1), (2,), 5) == (35.0, 0)


def test_single_micro_batch_goes_there_and_back():
    """Forwards 6, backwards 9, twice two messages of 0.5."""
    times = alike([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], num_stages=3, transfer_s=0.5)
    assert _timing(times, (1, 2, 3), 1) == (17.0, 2)


def test_stages_without_slots_do_all_backwards_after_all_forwards():
    """M = 2 on 3 stages, F = B = 9, 1, 1. Stage 1 does its second forward from 18 to 19, then its first backward.

    So stage 0 begins its two backwards of 9 at 20.
    """
    times = alike([9.0, 1.0, 1.0], [9.0, 1.0, 1.0], num_stages=3)
    assert _timing(times, (1, 2, 3), 2)[0] == 38.0
    assert simulated(times, np.array([[1, 2, 3]]), 2) == [38.0]


@pytest.mark.parametrize("num_microbatches", [1, 2, 3, 5, 6, 7, 20])
def test_equal_stages_take_their_exact_time(num_microbatches):
    """(M + p - 1)(F + B) with p = 6."""
    times = alike([1.0] * 6, [2.0] * 6, num_stages=6)
    assert _timing(times, range(1, 7), num_microbatches)[0] == (num_microbatches + 5) * 3.0


def test_very_many_micro_batches_take_as_long_each_as_on_the_critical_stage():
    """The hand-made pipeline above: each slot of stage 1 is 2 + 3 + 0.5."""
    times = alike([1.0, 2.0], [2.0, 3.0], num_stages=2, transfer_s=0.5)
    assert _timing(times, (1, 2), 100_000) == (25.5 + (100_000 - 4) * 5.5, 1)


def test_partitions_are_timed_together_as_one_by_one():
    times = alike([3.0, 1.0, 4.0, 1.0, 5.0, 9.0], [2.0, 6.0, 5.0, 3.0, 5.0, 8.0], num_stages=3, transfer_s=0.25)
    stops = all_stops(6, 3)
    together = timings(times, stops, 6)
    each = [_timing(times, row, 6) for row in stops]
    assert list(zip(together.seconds.tolist(), together.critical.tolist(), strict=True)) == each


def test_stages_have_times_of_their_own():
    """The second device is twice as fast: 4 layers take what 2 take on the first, and M = 3 of both (3 + 1) x 6."""
    forward_s = np.array([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]])
    times = StageTimes(forward_s=forward_s, backward_s=2 * forward_s, transfer_s=np.zeros((1, 7)))
    assert _timing(times, (2, 6), 3) == (24.0, 1)


def test_times_in_other_units_are_the_same():
    times = alike([3.0, 1.0, 4.0, 1.0, 5.0], [2.0, 6.0, 5.0, 3.0, 5.0], num_stages=3)
    small = alike([0.3, 0.1, 0.4, 0.1, 0.5], [0.2, 0.6, 0.5, 0.3, 0.5], num_stages=3)
    stops = all_stops(5, 3)
    large, small = timings(times, stops, 6), timings(small, stops, 6)
    np.testing.assert_allclose(large.seconds, 10 * small.seconds)
    assert large.critical.tolist() == small.critical.tolist()


def test_recurrences_are_those_of_the_module_slot_by_slot():
    """Random whole seconds, more micro-batches than stages: against plain loops."""
    rng = random.Random(5)
    for _ in range(200):
        num_stages = rng.randint(1, 6)
        forward_s, backward_s = ([float(rng.randint(1, 9)) for _ in range(num_stages)] for _ in "FB")
        transfer_s = [float(max(0, rng.randint(-9, 9))) for _ in range(num_stages - 1)]
        num_microbatches = rng.randint(num_stages + 1, 3 * num_stages + 1)
        times = alike(forward_s, backward_s, num_stages=num_stages)
        table = np.tile(np.array(transfer_s)[:, None], num_stages + 1)
        times = replace(times, transfer_s=table)
        expected = _slot_by_slot(forward_s, backward_s, [0.0, *transfer_s, 0.0], num_microbatches)
        assert _timing(times, range(1, num_stages + 1), num_microbatches) == expected


def _slot_by_slot(forward_s, backward_s, transfer_s, num_microbatches):
    """Seconds and critical stage; transfer_s[s] is that before stage s."""
    num_stages = len(forward_s)
    slots = [num_microbatches - num_stages + s for s in range(num_stages)]
    f, b, start = {}, {}, sum(forward_s) + sum(transfer_s)
    for s in reversed(range(num_stages)):
        b[s, 0] = start
        start += backward_s[s] + transfer_s[s]
    for k in range(1, num_microbatches):
        for s in range(num_stages):
            if k <= slots[s]:
                arrived = f.get((s - 1, k - 1), -np.inf) + forward_s[s - 1]
                f[s, k] = max(arrived, b[s, k - 1] + backward_s[s]) + transfer_s[s]
        for s in reversed(range(num_stages)):
            if k <= slots[s]:
                returned = b[s + 1, k] + backward_s[s + 1] if s + 1 < num_stages else -np.inf
                b[s, k] = max(returned, f[s, k] + forward_s[s]) + transfer_s[s + 1]
    never_wait = [
        s
        for s in range(num_stages)
        if b[s, slots[s]] - b[s, 0] == slots[s] * (forward_s[s] + backward_s[s] + transfer_s[s] + transfer_s[s + 1])
    ]
    critical, d = never_wait[-1], {}
    start = f[critical, slots[critical]]
    for s in range(critical, num_stages):
        start += forward_s[s] + transfer_s[s + 1]
        d[s, 0] = start
    for i in range(1, num_stages - critical):
        for s in range(critical, num_stages - i):
            d[s, i] = max(d[s, i - 1] + backward_s[s], d[s + 1, i - 1] + backward_s[s + 1]) + transfer_s[s + 1]
            if s > critical:
                d[s, i] = max(d[s, i], d[s - 1, i])
    end = d[critical, num_stages - 1 - critical] + sum(backward_s[: critical + 1]) + sum(transfer_s[: critical + 1])
    return end, critical
