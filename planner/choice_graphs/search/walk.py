"""A random walk from choice to choice, each legal: trees chosen anew for costs with noise."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.choice_graphs.search.problem import Problem
from stagecut.planner.choice_graphs.search.random_numbers import Words, below, fraction, random_state
from stagecut.planner.choice_graphs.search.slack import least_slack
from stagecut.planner.choice_graphs.search.state import State, state_of
from stagecut.planner.choice_graphs.search.trees import Tree, choose_tree, grow, restore, tree_of
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.compiled import compiled

_TINY = 1e-300


class Walker(NamedTuple):
    """Where a walk is, the best choice it came by, and its tools."""

    state: State
    best: Ints
    """(groups,)"""
    best_total: Ints
    """(1,)"""
    tree: Tree
    noisy: Ints
    """(options,): prices with noise, of the groups of the tree."""
    movable: Ints
    """Groups with more than one option."""
    random: Words


def walker_of(problem: Problem, choice: Ints, seed: int) -> Walker:
    """A walk that begins at a legal choice."""
    state = state_of(problem, choice)
    return Walker(
        state=state,
        best=choice.copy(),
        best_total=state.total.copy(),
        tree=tree_of(problem),
        noisy=np.zeros(len(problem.cost), dtype=np.int64),
        movable=np.flatnonzero(np.diff(problem.first) > 1),
        random=random_state(seed),
    )


@compiled
def walk(problem: Problem, walker: Walker, price: Ints, most: int, num_trees: int, temperature: float) -> None:
    """Choose so many random trees of up to `most` groups anew; what would exceed the limit is undone.

    A tree gets the choice of least cost and price, from which each option subtracts the temperature times a random
    number of Gumbel's distribution. For a single group that is a draw with probabilities proportional to
    exp(-(cost + price) / temperature), as in Gibbs sampling; for trees it is perturb-and-MAP (Papandreou and Yuille,
    ICCV 2011), which comes close to it.
    """
    state, tree = walker.state, walker.tree
    for _ in range(num_trees):
        root = walker.movable[below(walker.random, len(walker.movable))]
        size = grow(problem, tree, root, 1 + below(walker.random, most), walker.random)
        for at in range(size):
            for i in range(problem.first[tree.group[at]], problem.first[tree.group[at] + 1]):
                walker.noisy[i] = price[i]
                if temperature > 0:
                    exponential = -np.log(fraction(walker.random) + _TINY)
                    walker.noisy[i] += np.int64(temperature * np.log(exponential + _TINY))
        if choose_tree(problem, state, walker.noisy, tree, size) == 0:
            continue
        if least_slack(state.slack, 0, len(state.slack.value)) < 0:
            restore(problem, state, tree, size)
        elif state.total[0] < walker.best_total[0]:
            walker.best_total[0] = state.total[0]
            walker.best[:] = state.choice
