"""Nodes that hang on the rest by one edge: eliminated leaf by leaf, exactly."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stagecut.planner.choice_graphs.bounds.scaled import Table
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled


class Tree(NamedTuple):
    """Nodes in the order of elimination, each with the neighbour that is left to it."""

    child: Ints
    parent: Ints
    """-1 for the last node of a component that is a tree."""
    first_pair: Ints
    pair_cost: Floats
    """Tables of options of the child by options of the parent, row by row."""


def peel(tables: list[dict[int, Table]]) -> Tree:
    """Take leaves out of the tables, in place, until every node that is left has two neighbours at least."""
    leaves = [v for v in range(len(tables)) if len(tables[v]) <= 1]
    child: list[int] = []
    parent: list[int] = []
    peeled: list[Table] = []
    gone = [False] * len(tables)
    while leaves:
        leaf = leaves.pop()
        if gone[leaf]:
            continue
        gone[leaf] = True
        child.append(leaf)
        parent.append(next(iter(tables[leaf]), -1))
        if parent[-1] >= 0:
            peeled.append(tables[leaf].pop(parent[-1]))
            del tables[parent[-1]][leaf]
            leaves.extend([parent[-1]] if len(tables[parent[-1]]) <= 1 else [])
        else:
            peeled.append(np.zeros((0, 0)))
    return Tree(np.array(child, np.int64), np.array(parent, np.int64), offsets(peeled), joined(peeled))


def offsets(tables: Sequence[Floats | Table]) -> Ints:
    """Where each array begins when all are laid out in a row; the end of the last."""
    return np.concatenate(([0], np.cumsum([table.size for table in tables], dtype=np.int64)))


def joined(tables: Sequence[Floats | Table]) -> Floats:
    """Arrays laid out in a row, each row by row."""
    return np.concatenate([table.ravel() for table in tables]) if tables else np.zeros(0)


@compiled
def eliminate(tree: Tree, first_option: Ints, cost: Floats) -> float:
    """Add to every parent what its children cost at least, in place; return the least cost of all roots."""
    total = 0.0
    for at in range(len(tree.child)):
        child, parent = tree.child[at], tree.parent[at]
        own = cost[first_option[child] : first_option[child + 1]]
        if parent < 0:
            total += own.min()
            continue
        begin, width = first_option[parent], first_option[parent + 1] - first_option[parent]
        least = np.full(width, np.inf)
        for p in range(len(own)):
            row = tree.first_pair[at] + p * width
            for q in range(width):
                value = own[p] + tree.pair_cost[row + q]
                least[q] = value if value < least[q] else least[q]
        for q in range(width):
            cost[begin + q] += least[q]
    return total


@compiled
def choose(tree: Tree, first_option: Ints, cost: Floats, choices: Ints) -> None:
    """Given the choices of nodes outside the tree and the costs that `eliminate` left, the best inside, in place."""
    for back in range(len(tree.child)):
        at = len(tree.child) - 1 - back
        child, parent = tree.child[at], tree.parent[at]
        begin, number = first_option[child], first_option[child + 1] - first_option[child]
        width = 0 if parent < 0 else first_option[parent + 1] - first_option[parent]
        least = np.inf
        for p in range(number):
            value = cost[begin + p]
            if parent >= 0:
                value += tree.pair_cost[tree.first_pair[at] + p * width + choices[parent]]
            if value < least:
                least = value
                choices[child] = p
