"""Simulated annealing with single changes."""

import numpy as np

from stagecut.planner.choice_graphs.compiled import compiled
from stagecut.planner.choice_graphs.search.problem import Problem
from stagecut.planner.choice_graphs.search.random_numbers import Words, below, fraction
from stagecut.planner.choice_graphs.search.state import State, change, fits
from stagecut.planner.core.arrays import Ints


@compiled
def anneal(
    problem: Problem, state: State, movable: Ints, price: Ints, temperature: float, num_tries: int, random: Words
) -> int:
    """Try random changes that fit; one that costs d more is made with probability exp(-d / temperature).

    Returns
    -------
    int
        How many were made.
    """
    made = 0
    for _ in range(num_tries):
        g = movable[below(random, len(movable))]
        first = problem.first[g]
        p = below(random, problem.first[g + 1] - first - 1)
        p += p >= state.choice[g]
        now, then = first + state.choice[g], first + p
        more = state.marginal[then] + price[then] - state.marginal[now] - price[now]
        if (more <= 0 or fraction(random) < np.exp(-more / temperature)) and fits(problem, state, g, p):
            change(problem, state, g, p)
            made += 1
    return made
