"""Least squares with a lower limit on the unknowns."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats
from stagecut.planner.core.numerics.tolerances import LEAST_SQUARES


def least_squares_above(matrix: Floats, target: Floats, *, least: float) -> Floats:
    """The x, shape (n,), that minimises |matrix x - target|^2 subject to x >= least.

    The matrix has shape (rows, n) and linearly independent columns, the target shape (rows,).

    Notes
    -----
    The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23): unknowns
    leave their limit one by one, steepest descent first; those that a solution would push below it return.
    """
    target = target - least * matrix.sum(axis=1)
    excess = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], dtype=bool)
    tolerance = LEAST_SQUARES * max(1.0, float(np.abs(matrix.T @ target).max(initial=0.0)))
    for _ in range(3 * len(excess) + 1):
        descent = np.where(free, -np.inf, matrix.T @ (target - matrix @ excess))
        if free.all() or descent.max() <= tolerance:
            break
        free[int(descent.argmax())] = True
        excess, free = _solve_free(matrix, target, excess, free)
    return least + excess


def _solve_free(matrix: Floats, target: Floats, excess: Floats, free: Bools) -> tuple[Floats, Bools]:
    """Walk towards the solution in the free unknowns; those that would turn negative stop at zero."""
    while True:
        wanted = np.zeros_like(excess)
        wanted[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        below = free & (wanted < 0)
        if not below.any():
            return wanted, free
        step = float(np.min(excess[below] / (excess[below] - wanted[below])))
        excess = excess + step * (wanted - excess)
        free = free & (excess > LEAST_SQUARES)
        excess = np.where(free, excess, 0.0)
