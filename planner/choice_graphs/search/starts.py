"""Legal choices to begin with."""

import numpy as np

from stagecut.planner.choice_graphs.search.prices import prices_of
from stagecut.planner.choice_graphs.search.problem import Problem
from stagecut.planner.choice_graphs.search.slack import least_slack
from stagecut.planner.choice_graphs.search.state import State, change, fits, state_of
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.compiled import compiled


def least_usage(problem: Problem) -> Ints:
    """By group the option that uses least, summed over moments in shares of their room; the cheapest of those."""
    price = prices_of(problem, problem.wall / 2**12 / (np.maximum(problem.room, 1) * max(len(problem.room), 1)))
    choice = np.empty(len(problem.first) - 1, dtype=np.int64)
    for group, (first, stop) in enumerate(zip(problem.first[:-1].tolist(), problem.first[1:].tolist(), strict=True)):
        choice[group] = np.lexsort((problem.cost[first:stop], price[first:stop]))[0]
    return choice


def repaired(problem: Problem, choice: Ints) -> Ints | None:
    """A choice within the limit: changes that cost least per unit until the worst moment fits, then the next one.

    None if that ends at a moment where no change helps without exceeding the limit elsewhere.
    """
    state = state_of(problem, choice)
    return state.choice if _repair(problem, state) else None


@compiled
def _repair(problem: Problem, state: State) -> bool:
    while least_slack(state.slack, 0, len(state.slack.value)) < 0:
        worst = _worst_moment(state)
        over = -least_slack(state.slack, worst, worst + 1)
        best_rate, best_group, best_option = np.inf, -1, -1
        for group in range(len(state.choice)):
            for piece in range(problem.first_piece[group], problem.first_piece[group + 1]):
                if problem.begin[piece] <= worst < problem.end[piece]:
                    first, at = problem.first[group], problem.first_amount[piece]
                    now = state.choice[group]
                    for p in range(problem.first[group + 1] - first):
                        less = problem.amount[at + now] - problem.amount[at + p]
                        if less > 0:
                            more = state.marginal[first + p] - state.marginal[first + now]
                            rate = more / min(less, over) if more > 0 else more * 1.0
                            if rate < best_rate and fits(problem, state, group, p):
                                best_rate, best_group, best_option = rate, group, p
        if best_group < 0:
            return False
        change(problem, state, best_group, best_option)
    return True


@compiled
def _worst_moment(state: State) -> int:
    """The first moment with the least room."""
    worst, least = 0, least_slack(state.slack, 0, 1)
    for moment in range(1, len(state.slack.value)):
        slack = least_slack(state.slack, moment, moment + 1)
        if slack < least:
            worst, least = moment, slack
    return worst
