"""Largest values of runs of layers."""

import numpy as np
import pytest

from stagecut.planner.cost.stage_costs import RangeMaxima


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 9, 31, 33])
def test_maxima_are_those_of_the_runs(size):
    """Every run, the empty ones too, of values some of which are zero."""
    values = np.random.default_rng(size).integers(0, 5, size).astype(float)
    start, stop = np.triu_indices(size + 1)
    wanted = [max(values[i:j], default=0.0) for i, j in zip(start, stop, strict=True)]
    assert RangeMaxima(values)(start, stop).tolist() == wanted


def test_long_chains_take_little_memory():
    """A table of all runs of 100,000 layers would be 80 GB; the last layer is the largest."""
    maxima = RangeMaxima(np.arange(100_000.0))
    assert maxima(np.array([0, 0, 99_998]), np.array([100_000, 50_000, 99_999])).tolist() == [99_999, 49_999, 99_998]
