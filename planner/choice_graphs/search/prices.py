"""What usage costs at given multipliers."""

import numpy as np

from stagecut.planner.choice_graphs.search.problem import Problem
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled

_SAFE = 1 - 2.0**-36
"""For sums of up to 2^16 products."""


def prices_of(problem: Problem, multiplier: Floats) -> Ints:
    """Price of every option (options,): multiplier times amount, over all moments, rounded down.

    Parameters
    ----------
    multiplier
        (moments,): cost per unit of usage at each moment, at least 0. If floats hold sums of them exactly, no price is
        too high: its other operations round by less than `_SAFE` takes off.
    """
    price = np.zeros(len(problem.cost))
    _add_prices(problem, np.concatenate([[0.0], np.cumsum(multiplier)]), price)
    rounded: Ints = np.floor(np.minimum(price * _SAFE, problem.wall)).astype(np.int64)
    return rounded


@compiled
def _add_prices(problem: Problem, before: Floats, price: Floats) -> None:
    """Price of a unit during a piece is the sum of its multipliers, from their running sum."""
    for group in range(len(problem.first) - 1):
        first = problem.first[group]
        for piece in range(problem.first_piece[group], problem.first_piece[group + 1]):
            per_unit = before[problem.end[piece]] - before[problem.begin[piece]]
            for p in range(problem.first[group + 1] - first):
                price[first + p] += per_unit * problem.amount[problem.first_amount[piece] + p]
