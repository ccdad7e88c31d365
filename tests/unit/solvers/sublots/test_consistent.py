"""The linear program of consistent sublots, on cases by hand."""

import pytest

from stagecut.planner.solvers.sublots.consistent import consistent_sublots


def test_one_sublot_passes_the_processes_one_after_another():
    """(1 + 2 x 3) + (4 + 1 x 3)."""
    found = consistent_sublots([1, 4], [2, 1], num_samples=3, num_sublots=1)
    assert found.makespan_s == pytest.approx(14, rel=1e-6)
    assert found.lengths == pytest.approx([3], rel=1e-6)


def test_setups_alone_are_paid_for_every_sublot():
    """Two sublots of setups of 1 s on three processes: 3 + 1."""
    found = consistent_sublots([1, 1, 1], [0, 0, 0], num_samples=5, num_sublots=2)
    assert found.makespan_s == pytest.approx(4, rel=1e-6)


def test_a_slow_second_process_gets_a_small_first_sublot():
    """T = x, then 3 x, 4 samples in two: lengths 1 and 3, 1 + 3 x 4 s."""
    found = consistent_sublots([0, 0], [1, 3], num_samples=4, num_sublots=2)
    assert found.lengths == pytest.approx([1, 3], rel=1e-4)
    assert found.makespan_s == pytest.approx(13, rel=1e-6)
