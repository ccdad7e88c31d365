"""Trees of groups, chosen anew together."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.choice_graphs.search.problem import Problem
from stagecut.planner.choice_graphs.search.random_numbers import Words, below
from stagecut.planner.choice_graphs.search.state import State, add_row, change
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.compiled import compiled

_IN_TREE = -1


class Tree(NamedTuple):
    """A tree whose groups have no edges between them but the tree's, and room for the tables of a search on it."""

    group: Ints
    """(groups,): those of the tree first, each behind the one it hangs on."""
    parent: Ints
    """(groups,): its place in `group`; -1 for the root."""
    link: Ints
    """(groups,): the link of the parent that leads to it."""
    num_links: Ints
    """(groups,): how many neighbours of a group are in the tree; -1 for those in it."""
    waiting: Ints
    """(links,): links that lead out of the tree,"""
    waiting_at: Ints
    """(links,): and the places in `group` from which they do."""
    value: Ints
    """(options,): the least cost of what hangs below an option, and of the option."""
    old: Ints
    """(groups,): options before."""


def tree_of(problem: Problem) -> Tree:
    """An empty tree."""
    groups, links = np.zeros(len(problem.first) - 1, dtype=np.int64), np.zeros(len(problem.neighbour), dtype=np.int64)
    value = np.zeros(len(problem.cost), dtype=np.int64)
    return Tree(groups.copy(), groups.copy(), groups.copy(), groups.copy(), links, links.copy(), value, groups.copy())


@compiled
def grow(problem: Problem, tree: Tree, root: int, most: int, random: Words) -> int:
    """Add neighbours of the tree at random while they have one neighbour in it; return how many groups it has."""
    size, waiting = 1, 0
    tree.group[0], tree.parent[0] = root, -1
    at = 0
    while True:
        g = tree.group[at]
        tree.num_links[g] = _IN_TREE
        for link in range(problem.first_link[g], problem.first_link[g + 1]):
            other = problem.neighbour[link]
            if tree.num_links[other] != _IN_TREE:
                tree.num_links[other] += 1
                if tree.num_links[other] == 1:
                    tree.waiting[waiting], tree.waiting_at[waiting] = link, at
                    waiting += 1
        found = False
        while size < most and waiting > 0 and not found:
            i = below(random, waiting)
            link, parent = tree.waiting[i], tree.waiting_at[i]
            waiting -= 1
            tree.waiting[i], tree.waiting_at[i] = tree.waiting[waiting], tree.waiting_at[waiting]
            found = tree.num_links[problem.neighbour[link]] == 1
        if not found:
            break
        tree.group[size], tree.parent[size], tree.link[size] = problem.neighbour[link], parent, link
        at = size
        size += 1
    _forget(problem, tree, size)
    return size


@compiled
def _forget(problem: Problem, tree: Tree, size: int) -> None:
    """Count no links any more."""
    for at in range(size):
        g = tree.group[at]
        tree.num_links[g] = 0
        for link in range(problem.first_link[g], problem.first_link[g + 1]):
            tree.num_links[problem.neighbour[link]] = 0


@compiled
def choose_tree(problem: Problem, state: State, price: Ints, tree: Tree, size: int) -> int:
    """Choose the groups of the tree anew, the least cost and price given the others; return how many changed."""
    _gather(problem, state, price, tree, size)
    for at in range(size - 1, 0, -1):
        _send(problem, tree.value, tree.group[at], tree.group[tree.parent[at]], tree.link[at])
    changed = 0
    for at in range(size):
        g = tree.group[at]
        if at > 0:
            parent = tree.group[tree.parent[at]]
            add_row(problem, tree.value, g, problem.back[tree.link[at]], state.choice[parent], 1)
        values = tree.value[problem.first[g] : problem.first[g + 1]]
        option = _best(values, tree.old[at])
        values[:] = 0
        if option != tree.old[at]:
            change(problem, state, g, option)
            changed += 1
    return changed


@compiled
def _gather(problem: Problem, state: State, price: Ints, tree: Tree, size: int) -> None:
    """Note the present options, and what every option costs without the pairs along the tree."""
    for at in range(size):
        g = tree.group[at]
        tree.old[at] = state.choice[g]
        for i in range(problem.first[g], problem.first[g + 1]):
            tree.value[i] += state.marginal[i] + price[i]
        if at > 0:
            parent, link = tree.group[tree.parent[at]], tree.link[at]
            add_row(problem, tree.value, g, problem.back[link], state.choice[parent], -1)
            add_row(problem, tree.value, parent, link, state.choice[g], -1)


@compiled
def restore(problem: Problem, state: State, tree: Tree, size: int) -> None:
    """Choose again what was chosen before."""
    for at in range(size):
        if state.choice[tree.group[at]] != tree.old[at]:
            change(problem, state, tree.group[at], tree.old[at])


@compiled
def _send(problem: Problem, value: Ints, group: int, parent: int, link: int) -> None:
    """Add to every option of the parent the least value of an option of the group with it."""
    first = problem.first[parent]
    num, rows = problem.first[parent + 1] - first, problem.first[group + 1] - problem.first[group]
    least = np.full(num, 2**62)
    for q in range(rows):
        own, row = value[problem.first[group] + q], problem.first_pair[link] + q * num
        for p in range(num):
            least[p] = min(least[p], own + problem.pair_cost[row + p])
    for p in range(num):
        value[first + p] += least[p]


@compiled
def _best(values: Ints, present: int) -> int:
    """The place of the least value; the present one if it is as good."""
    best = present
    for p in range(len(values)):
        if values[p] < values[best]:
            best = p
    return best
