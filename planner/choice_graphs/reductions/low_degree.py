"""Nodes with at most two neighbours, whose best option follows from theirs."""

from functools import partial

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE
from stagecut.planner.choice_graphs.reductions.workbench import Workbench, plus
from stagecut.planner.core.numerics.arrays import Ints

MOST_COMBINATIONS = 2**22
"""Options of a node by those of its neighbours: more are not looked at."""


def eliminate_node(bench: Workbench, node: int) -> bool:
    """Take out a slack node of degree 0, 1 or 2.

    Its own cost and those of its edges, at the best option for every combination of its neighbours' options, become
    a constant, a cost of the neighbour, or costs of an edge between the neighbours (variable elimination: Bertele and
    Brioschi, Nonserial Dynamic Programming, 1972). As the node is slack, any of its options is within the limit, so
    the choices of all others lose nothing.
    """
    neighbours = sorted(bench.tables[node])
    if not bench.is_slack[node] or len(neighbours) > 2:
        return False
    shape = [len(bench.cost[each]) for each in (node, *neighbours)]
    if np.prod(shape, dtype=np.float64) > MOST_COMBINATIONS:
        return False
    total = bench.cost[node].reshape(-1, *(1 for _ in neighbours))
    for axis, neighbour in enumerate(neighbours):
        own = [shape[0], *(size if place == axis else 1 for place, size in enumerate(shape[1:]))]
        total = plus(total, bench.tables[node][neighbour].reshape(own))
    best, least = total.argmin(axis=0), total.min(axis=0)
    numbers = [bench.number[each] for each in neighbours]
    bench.drop_node(node, partial(_choose, node, neighbours, numbers, bench.number[node][best]))
    _add(bench, neighbours, least)
    return True


def _choose(node: int, neighbours: list[int], numbers: list[Ints], best: Ints, choices: Ints) -> None:
    places = tuple(
        np.searchsorted(known, choices[neighbour]) for neighbour, known in zip(neighbours, numbers, strict=True)
    )
    choices[node] = best[places]


def _add(bench: Workbench, neighbours: list[int], least: Ints) -> None:
    match neighbours:
        case []:
            bench.constant += int(least)
            if least >= IMPOSSIBLE:
                bench.stuck = 0
        case [only]:
            bench.cost[only] = plus(bench.cost[only], least)
            bench.touched.add(only)
        case [u, v]:
            known = bench.tables[u].get(v)
            bench.set_table(u, v, least if known is None else plus(known, least))
