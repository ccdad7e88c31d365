"""AutoPipe's partition of a chain of layers."""

import numpy as np
import pytest

from stagecut.planner.solvers.papers.autopipe_partition import partition as search
from stagecut.planner.solvers.papers.autopipe_partition.partition import balanced_partition, partition
from stagecut.planner.solvers.papers.autopipe_partition.time import StageTimes, timings
from tests.chains import alike, all_stops, work

KNOWN = [(5, [0, 5, 10, 15, 20], 204_000.0, 207_000.0), (7, [0, 4, 8, 12, 15, 18, 21], 216_000.0, 228_000.0)]
"""Stages, their first layers, and the iteration time with 2 p micro-batches: as found, and of the first step alone.

24 layers of 1,000 forward and 2,000 backward; the published planner gives these. Those of 5 stages are derived in
test_autopipe_time.py.
"""


@pytest.mark.parametrize("scale", [1.0, 1e-3 / 7])
@pytest.mark.parametrize(("num_stages", "starts", "seconds", "balanced_s"), KNOWN)
def test_published_partition_is_found(num_stages, starts, seconds, balanced_s, scale):
    """The unit of time may be one in which sums of equal layers differ in the last bit."""
    times = alike([1000.0 * scale] * 24, [2000.0 * scale] * 24, num_stages=num_stages)
    found = partition(times, 2 * num_stages)
    assert [0, *found.stops[:-1]] == starts
    assert found.seconds == pytest.approx(seconds * scale)
    first = timings(times, balanced_partition(times)[None], 2 * num_stages)
    assert first.seconds[0] == pytest.approx(balanced_s * scale)


def test_late_stages_are_heavy_in_the_balanced_partition():
    """7 equal layers on 3 stages: the last one takes as many as any must, 3, and the others share 4."""
    assert balanced_partition(alike([1.0] * 7, [2.0] * 7, num_stages=3)).tolist() == [2, 4, 7]


def test_balanced_partition_has_the_fastest_slowest_stage():
    """Against all partitions, with times of each stage's own."""
    rng = np.random.default_rng(7)
    for _ in range(40):
        num_stages = int(rng.integers(1, 5))
        num_layers = int(rng.integers(num_stages, 10))
        times = _unlike(rng, num_stages, num_layers)
        least = min(work(times, stops).max() for stops in all_stops(num_layers, num_stages))
        assert work(times, balanced_partition(times)).max() == pytest.approx(least)


def test_critical_stage_gives_layers_to_the_front():
    """4 equal layers on 3 stages, M = 6: balanced are 1, 1, 2 layers; with 2, 1, 1 the pipeline ends sooner.

    Step 1: 4 + 5 x 6 to the last backward of stage 2, then 4 + 2 + 2: 42. Found: b(0, 0) = 4 + 4, three slots of 6 to
    26, three backwards are left: 26, 30 and 34, the last of 4: 38.
    """
    times = alike([1.0] * 4, [2.0] * 4, num_stages=3)
    assert timings(times, balanced_partition(times)[None], 6).seconds == [42.0]
    found = partition(times, 6)
    assert (found.stops.tolist(), found.seconds) == ([2, 3, 4], 38.0)


def test_stages_behind_the_critical_one_are_rebalanced(monkeypatch):
    """Without the rebalancing, the best partition is 1, 2, 4, 5, 6 with 135."""
    times = alike([5.0, 4.0, 1.0, 1.0, 4.0, 1.0], [7.0, 1.0, 5.0, 3.0, 6.0, 4.0], num_stages=5)
    found = partition(times, 10)
    assert (found.stops.tolist(), found.seconds) == ([1, 3, 4, 5, 6], 134.0)
    monkeypatch.setattr(search, "_rebalanced", lambda clock, stops: ())
    assert partition(times, 10).seconds == 135.0


def test_faster_devices_get_more_layers():
    """6 layers, the second device twice as fast: 2 and 4 layers are in balance."""
    forward_s = np.array([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]])
    times = StageTimes(forward_s=forward_s, backward_s=2 * forward_s, transfer_s=np.zeros((1, 7)))
    assert partition(times, 4).stops.tolist() == [2, 6]


def test_partition_is_legal_and_no_slower_than_the_balanced_one():
    rng = np.random.default_rng(11)
    for _ in range(40):
        num_stages = int(rng.integers(1, 7))
        times = _unlike(rng, num_stages, int(rng.integers(num_stages, 14)))
        num_microbatches = int(rng.integers(1, 3 * num_stages + 1))
        found = partition(times, num_microbatches)
        assert np.all(np.diff(found.stops, prepend=0) >= 1)
        assert found.stops[-1] == times.num_layers
        assert timings(times, found.stops[None], num_microbatches).seconds[0] == found.seconds
        assert found.seconds <= timings(times, balanced_partition(times)[None], num_microbatches).seconds[0]


def test_search_ends_at_a_count_of_partitions(monkeypatch):
    """One partition: the balanced one, whose critical stage is the last one."""
    monkeypatch.setattr(search, "MAX_PARTITIONS", 1)
    assert partition(alike([1.0] * 24, [2.0] * 24, num_stages=5), 10).seconds == 207.0


def test_stopped_search_gives_the_balanced_partition():
    assert partition(alike([1.0] * 24, [2.0] * 24, num_stages=5), 10, stopped=lambda: True).seconds == 207.0


def test_more_stages_than_layers_are_refused():
    with pytest.raises(ValueError, match="2 layers cannot fill 3 stages"):
        partition(alike([1.0, 1.0], [1.0, 1.0], num_stages=3), 6)


def _unlike(rng, num_stages, num_layers):
    """Stages with times of their own, and a message time for every boundary."""
    forward_s, backward_s = rng.uniform(0.1, 2.0, (2, num_stages, num_layers))
    return StageTimes(
        forward_s=np.cumsum(np.pad(forward_s, ((0, 0), (1, 0))), axis=1),
        backward_s=np.cumsum(np.pad(backward_s, ((0, 0), (1, 0))), axis=1),
        transfer_s=rng.uniform(0.0, 0.5, (num_stages - 1, num_layers + 1)),
    )
