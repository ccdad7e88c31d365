"""Curves of seconds by message size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecut.executor.measure.curves import latency_and_bandwidth, median_curve, message_sizes, rising, slowest_curve

SECONDS = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=12)


def test_sizes_grow_by_four_and_end_with_the_largest():
    assert message_sizes(1024, 65536) == (1024, 4096, 16384, 65536)
    assert message_sizes(1024, 5000) == (1024, 4096, 5000)
    assert message_sizes(1024, 1024) == (1024,)


def test_a_dip_is_filled_with_the_time_before_it():
    assert rising(((1.0, 3.0), (4.0, 2.0), (16.0, 5.0))) == ((1.0, 3.0), (4.0, 3.0), (16.0, 5.0))


@given(SECONDS)
def test_a_cleaned_curve_never_falls_and_is_nowhere_below_the_measured_one(seconds):
    curve = tuple((4.0**place, value) for place, value in enumerate(seconds))
    cleaned = [value for _, value in rising(curve)]
    assert cleaned == sorted(cleaned)
    assert all(after >= before for after, before in zip(cleaned, seconds, strict=True))
    assert rising(rising(curve)) == rising(curve)


def test_median_and_slowest_are_taken_point_by_point():
    curves = [((1.0, 1.0), (2.0, 9.0)), ((1.0, 2.0), (2.0, 8.0)), ((1.0, 6.0), (2.0, 7.0))]
    assert median_curve(curves) == ((1.0, 2.0), (2.0, 8.0))
    assert slowest_curve(curves) == ((1.0, 6.0), (2.0, 9.0))


def test_an_exact_line_gives_its_latency_and_bandwidth():
    """50 us + bytes / 2 GB/s."""
    curve = tuple((float(size), 50e-6 + size / 2e9) for size in message_sizes(1024, 2**26))
    latency_s, bandwidth_bytes_per_s = latency_and_bandwidth(curve)
    assert latency_s == pytest.approx(50e-6)
    assert bandwidth_bytes_per_s == pytest.approx(2e9)


def test_a_curve_that_bends_upwards_has_no_negative_latency():
    """A line through (1, 1) and (2, 4) would start at -2; through the origin: slope (1 + 2) / ... of bytes/seconds."""
    latency_s, bandwidth_bytes_per_s = latency_and_bandwidth(((1.0, 1.0), (2.0, 4.0)))
    ratio = [1.0, 0.5]
    assert latency_s == 0.0
    assert bandwidth_bytes_per_s == pytest.approx(sum(each**2 for each in ratio) / sum(ratio))


def test_a_falling_curve_has_the_bandwidth_of_its_largest_message():
    assert latency_and_bandwidth(((1.0, 4.0), (8.0, 2.0))) == (0.0, 4.0)
