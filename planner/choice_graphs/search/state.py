"""A choice of the groups, with what every other option would cost."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.choice_graphs.search.problem import Problem
from stagecut.planner.choice_graphs.search.slack import Slack, least_slack, slack_of, use
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.compiled import compiled


class State(NamedTuple):
    """Changed in place by the moves; all integers, so that nothing drifts."""

    choice: Ints
    """(groups,)"""
    marginal: Ints
    """(options,): cost of an option and of its pairs with the options chosen by the neighbours."""
    total: Ints
    """(1,): cost of the choice."""
    slack: Slack


def state_of(problem: Problem, choice: Ints) -> State:
    """The state of a choice."""
    state = State(choice.copy(), problem.cost.copy(), np.zeros(1, dtype=np.int64), slack_of(problem.room))
    _fill(problem, state)
    return state


@compiled
def _fill(problem: Problem, state: State) -> None:
    for g in range(len(state.choice)):
        own = problem.first[g] + state.choice[g]
        twice = problem.cost[own]
        for link in range(problem.first_link[g], problem.first_link[g + 1]):
            add_row(problem, state.marginal, g, link, state.choice[problem.neighbour[link]], 1)
        state.total[0] += twice + state.marginal[own]
        for piece in range(problem.first_piece[g], problem.first_piece[g + 1]):
            used = problem.amount[problem.first_amount[piece] + state.choice[g]]
            use(state.slack, problem.begin[piece], problem.end[piece], used)
    state.total[0] //= 2


@compiled
def add_row(problem: Problem, values: Ints, group: int, link: int, option: int, sign: int) -> None:
    """Add the costs of the group's options with an option of the neighbour at a link."""
    first = problem.first[group]
    num = problem.first[group + 1] - first
    row = problem.first_pair[link] + option * num
    for p in range(num):
        values[first + p] += sign * problem.pair_cost[row + p]


@compiled
def change(problem: Problem, state: State, group: int, option: int) -> None:
    """Choose another option."""
    old = state.choice[group]
    state.total[0] += state.marginal[problem.first[group] + option] - state.marginal[problem.first[group] + old]
    state.choice[group] = option
    for link in range(problem.first_link[group], problem.first_link[group + 1]):
        other = problem.neighbour[link]
        first = problem.first[other]
        num = problem.first[other + 1] - first
        before = problem.first_pair[problem.back[link]] + old * num
        after = problem.first_pair[problem.back[link]] + option * num
        for p in range(num):
            state.marginal[first + p] += problem.pair_cost[after + p] - problem.pair_cost[before + p]
    for piece in range(problem.first_piece[group], problem.first_piece[group + 1]):
        at = problem.first_amount[piece]
        more = problem.amount[at + option] - problem.amount[at + old]
        if more != 0:
            use(state.slack, problem.begin[piece], problem.end[piece], more)


@compiled
def fits(problem: Problem, state: State, group: int, option: int) -> bool:
    """Whether the room suffices for another option; what is over the limit already may not grow."""
    old = state.choice[group]
    for piece in range(problem.first_piece[group], problem.first_piece[group + 1]):
        at = problem.first_amount[piece]
        more = problem.amount[at + option] - problem.amount[at + old]
        if more > 0 and least_slack(state.slack, problem.begin[piece], problem.end[piece]) < more:
            return False
    return True
