"""How old weights may be, by counting; which depths a plan may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep, WaveRule
from tests.wave_workers import virtual_worker

lengths, distances, steps = st.integers(1, 7), st.integers(0, 3), st.sampled_from(LocalStep)


@given(wave=lengths, other=lengths, minibatch=st.integers(1, 40), clock=st.integers(0, 6))
def test_minibatches_that_begin_earlier_in_step_are_missing_unless_the_clock_has_them(wave, other, minibatch, clock):
    """Workers that go through each wave in H x H' units of time begin a minibatch every H' and every H units."""
    begins = (minibatch - 1) * other
    earlier = {number for number in range(1, 300) if (number - 1) * wave < begins}
    expected = len(earlier - set(range(1, clock * other + 1)))
    assert WaveRule(wave=wave, clock_distance=0).num_missing(minibatch, clock, other=other) == expected


@given(wave=lengths, other=lengths, distance=distances, step=steps)
def test_the_bound_is_the_most_that_any_minibatch_may_lack(wave, other, distance, step):
    rule = WaveRule(wave=wave, clock_distance=distance, local_step=step)
    every = range(1, (distance + 5) * wave + 1)
    assert rule.global_staleness(other) == max(rule.num_missing(p, rule.least_clock(p), other=other) for p in every)


@given(wave=lengths, distance=distances)
def test_the_bound_is_that_of_the_paper_where_waves_are_equal(wave, distance):
    """(D + 1)(s + 1) + s - 1 with s = H - 1, and D for H = 1, where it is D - 1 + 1: no minibatch precedes a gate."""
    local = wave - 1
    expected = max(distance, (distance + 1) * (local + 1) + local - 1)
    assert WaveRule(wave=wave, clock_distance=distance).global_staleness(wave) == expected


def test_unequal_waves_are_counted_in_minibatches_of_the_other_worker():
    """D = 0. Beside waves of 20, the first minibatch of a wave of 2 lacks the whole wave before: 20. The gate, half a
    wave later, lacks 10. Beside waves of 2, minibatch 19 of a wave of 20 lacks the 2 of the wave before
    and 2 of its own wave, which begin with its first and eleventh.
    """
    short, long = (WaveRule(wave=wave, clock_distance=0) for wave in (2, 20))
    assert short.num_missing(3, 0, other=20) == short.global_staleness(20) == 20
    assert short.num_missing(4, 1, other=20) == 10
    assert long.num_missing(39, 0, other=2) == long.global_staleness(2) == 4
    plan = WavePlan(
        workers=tuple(
            virtual_worker(name, [0, 1], in_flight=1, wave=wave) for name, wave in zip("abc", (2, 20, 2), strict=True)
        ),
        carrier=Carrier.DELAYED_ALL_REDUCE,
    )
    assert plan.staleness_of_others(0) == (0, 20, 2)
    assert plan.staleness_of_others(1) == (4, 0, 4)


def _plan(*depths, in_flight, wave, num_workers=2, step=LocalStep.MINIBATCH):
    cuts = range(len(depths) + 1)
    workers = [
        virtual_worker(f"w{number}", cuts, in_flight=in_flight, wave=wave, depths=depths)
        for number in range(num_workers)
    ]
    return WavePlan(workers=tuple(workers), local_step=step, carrier=Carrier.DELAYED_ALL_REDUCE)


@pytest.mark.parametrize(
    ("depths", "message"),
    [
        ((4, 1), "stage 0 of worker 0: warmup_depth must be at most 2, the minibatches of a wave, got 4"),
        ((1, 2), "stage 1 of worker 0: warmup_depth must be at most 1, that of the previous stage, got 2"),
    ],
)
def test_depths_with_which_stages_would_wait_forever_are_refused(depths, message):
    """H = 2. With 4 forwards ahead the gate of wave 1, minibatch 4, would come before the first backward."""
    with pytest.raises(BadInputError, match=message):
        _plan(*depths, in_flight=4, wave=2)


def test_a_wave_limits_no_worker_that_waits_for_none():
    """Alone, and without a flush, N_m is the limit."""
    assert _plan(3, 1, in_flight=3, wave=2, num_workers=1).num_layers == 2
    with pytest.raises(BadInputError, match="at most 2, the minibatches of a wave, got 3"):
        _plan(3, 1, in_flight=3, wave=2, num_workers=1, step=LocalStep.WAVE)
    with pytest.raises(BadInputError, match="at most 2, the minibatches in flight, got 3"):
        _plan(3, 1, in_flight=2, wave=2, num_workers=1)
