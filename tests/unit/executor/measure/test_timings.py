"""Which timings count."""

import pytest

from stagecut.executor.measure.timings import Timing, done_share, summarize

CLEAN, DIRTY = 0.01, 0.03


def timing(*seconds, share=CLEAN):
    return Timing(seconds=seconds, run_queue_share=share)


def test_disturbed_readings_are_rejected():
    """Median of 1, 2, 6 is 2; deviations 1, 0, 4 have median 1."""
    summary = summarize([timing(1.0), timing(9.0, share=DIRTY), timing(6.0), timing(2.0)])
    assert summary.total_s == 2.0
    assert summary.spread_s.tolist() == [1.0]
    assert (summary.num_kept, summary.num_rejected, summary.contaminated) == (3, 1, False)


def test_where_none_is_clean_all_count_and_it_is_said():
    summary = summarize([timing(1.0, share=DIRTY), timing(3.0, share=DIRTY)])
    assert summary.total_s == 2.0
    assert (summary.num_kept, summary.num_rejected, summary.contaminated) == (2, 0, True)


def test_medians_are_of_each_part():
    summary = summarize([timing(1.0, 30.0), timing(2.0, 20.0), timing(3.0, 10.0)])
    assert summary.median_s.tolist() == [2.0, 20.0]
    assert summary.total_s == 22.0


@pytest.mark.parametrize(
    ("num_clean", "num_dirty", "enough"), [(3, 0, True), (2, 6, False), (2, 7, True), (0, 9, True)]
)
def test_enough_is_so_many_clean_ones_or_three_times_as_many_in_all(num_clean, num_dirty, enough):
    timings = [timing(1.0)] * num_clean + [timing(1.0, share=DIRTY)] * num_dirty
    assert (done_share(timings, 3) >= 1) is enough
