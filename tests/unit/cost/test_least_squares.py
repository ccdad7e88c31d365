"""Least squares with a least value."""

import itertools

import numpy as np
import pytest

from stagecut.planner.cost.least_squares import least_squares_above


def test_bounds_that_do_not_bind_change_nothing():
    """x = 1, y = 2 solves both rows."""
    found = least_squares_above(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([1.0, 3.0]), least=0.0)
    assert found == pytest.approx([1.0, 2.0])


def test_an_unknown_that_would_be_too_small_stays_at_the_bound():
    """Freely x = 2, y = -1; with y = 0 the mean of x = 2 and x = 1 is nearest."""
    found = least_squares_above(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 1.0]), least=0.0)
    assert found == pytest.approx([1.5, 0.0])


@pytest.mark.parametrize("seed", range(30))
def test_no_choice_of_bound_unknowns_does_better(seed):
    """Every subset held at the bound, the others free: the best that keeps the bound is the answer."""
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(6, 4)), rng.normal(size=6)
    found = least_squares_above(matrix, target, least=0.1)
    best = np.inf
    for size in range(5):
        for free in map(list, itertools.combinations(range(4), size)):
            x = np.full(4, 0.1)
            held = matrix @ np.where(np.isin(range(4), free), 0.0, x)
            x[free] = np.linalg.lstsq(matrix[:, free], target - held, rcond=None)[0]
            if (x >= 0.1 - 1e-12).all():
                best = min(best, float(np.sum((matrix @ x - target) ** 2)))
    assert (found >= 0.1).all()
    assert float(np.sum((matrix @ found - target) ** 2)) == pytest.approx(best)
