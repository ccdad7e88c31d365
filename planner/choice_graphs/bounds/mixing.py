"""Where the next multipliers should be, from the tangents known so far: one step of a proximal bundle method.

Near the best multipliers c the bound is at most  value + min_k (e_k + g_k d),  d = m - c,  over all points k asked so
far: g_k is the slope there and e_k >= 0 how far the tangent lies above the value at c. The step maximises that less
|d|^2 / (2 t), with m >= 0. By duality  m = max(c + t g, 0)  for the mixture g = sum_k w_k g_k (w_k >= 0, sum w = 1)
that minimises  sum_k w_k e_k + g d - |d|^2 / (2 t)  at d = m - c: a smooth convex function of a few dozen weights.
"""

import math

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats

_CLOSE = 1e-6
"""Steps end when no weight moves by more."""


def mixture(slopes: Floats, errors: Floats, center: Floats, step: float, weights: Floats, num_steps: int) -> Floats:
    """Weights of the best mixture, by accelerated projected gradients from the given ones.

    Parameters
    ----------
    slopes
        (points, moments)
    errors, weights
        (points,)
    """
    # no eigenvalue of the curvature is larger than its largest sum of a row's sizes
    curvature = step * float(np.abs(slopes @ slopes.T).sum(axis=1).max(initial=0.0))
    length = 1.0 / max(curvature, 1e-300)
    best, ahead, momentum = weights, weights, 1.0
    for _ in range(num_steps):
        multipliers = np.maximum(center + step * (ahead @ slopes), 0.0)
        gradient = errors + slopes @ (multipliers - center)
        new = _onto_simplex(ahead - length * gradient)
        if gradient @ (new - best) > 0:  # the momentum leads uphill
            momentum = 1.0
        following = (1.0 + math.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = new + (momentum - 1.0) / following * (new - best)
        moved = np.abs(new - best).max()
        best, momentum = new, following
        if moved < _CLOSE:
            break
    return best


def _onto_simplex(values: Floats) -> Floats:
    """The nearest weights of at least 0 and sum 1."""
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, len(values) + 1)
    nearest: Floats = np.maximum(values - excess[np.flatnonzero(descending > excess)[-1]], 0.0)
    return nearest
