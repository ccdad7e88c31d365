"""Variable elimination: a dynamic program, exact and fast on chains, trees and graphs near to them."""

from functools import reduce

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.choice_graphs.moments import find_moments
from stagecut.planner.core.numerics.arrays import Ints

MOST_COMBINATIONS = 2**22
"""Entries of the largest table, 32 MiB."""
MOST_AXES = 20
Factor = tuple[tuple[int, ...], Ints]
"""Nodes in ascending order, and a cost for every combination of their options."""


def eliminate_all(graph: ChoiceGraph) -> tuple[bool, Ints | None]:
    """Solve a graph in which no moment can overflow; return whether that was possible, and the cheapest choice.

    One node after the other, that with the fewest neighbours first, is replaced by a table of its least cost over its
    options for every combination of its neighbours' (Bertele and Brioschi, 1972). On a tree the tables have one axis:
    the dynamic program from the leaves to the root. Ends without an answer if a table were too large.
    """
    if find_moments(graph).num_moments:
        return False, None
    factors: list[Factor] = [((v,), graph.cost[graph.options(v)]) for v in range(graph.num_nodes)]
    factors += [((u, v), graph.table(edge)) for edge, (u, v) in enumerate(graph.ends.tolist())]
    touching: list[set[int]] = [set() for _ in range(graph.num_nodes)]
    for place, (nodes, _) in enumerate(factors):
        for node in nodes:
            touching[node].add(place)
    steps: list[tuple[int, tuple[int, ...], Ints]] = []
    left = set(range(graph.num_nodes))
    while left:
        node = min(left, key=lambda v: (len(_neighbours(v, touching, factors)), v))
        nodes = tuple(sorted(_neighbours(node, touching, factors) | {node}))
        if len(nodes) > MOST_AXES or np.prod(graph.num_options[list(nodes)], dtype=np.float64) > MOST_COMBINATIONS:
            return False, None
        total = reduce(_plus, (_along(factors[place], nodes) for place in sorted(touching[node])))
        axis = nodes.index(node)
        rest = tuple(each for each in nodes if each != node)
        steps.append((node, rest, total.argmin(axis=axis)))
        for place in list(touching[node]):
            for each in factors[place][0]:
                touching[each].discard(place)
        for each in rest:
            touching[each].add(len(factors))
        factors.append((rest, total.min(axis=axis)))
        left.discard(node)
    constants = [int(table) for nodes, table in factors if not nodes]
    return True, None if any(cost >= IMPOSSIBLE for cost in constants) else _decode(graph.num_nodes, steps)


def _decode(num_nodes: int, steps: list[tuple[int, tuple[int, ...], Ints]]) -> Ints:
    choices = np.zeros(num_nodes, dtype=np.int64)
    for node, rest, best in reversed(steps):
        choices[node] = best[tuple(choices[list(rest)])]
    return choices


def _neighbours(node: int, touching: list[set[int]], factors: list[Factor]) -> set[int]:
    found = {each for place in touching[node] for each in factors[place][0]}
    return found - {node}


def _along(factor: Factor, nodes: tuple[int, ...]) -> Ints:
    """A table with an axis for every one of the nodes."""
    own, table = factor
    sizes = dict(zip(own, table.shape, strict=True))
    return table.reshape([sizes.get(node, 1) for node in nodes])


def _plus(first: Ints, second: Ints) -> Ints:
    total: Ints = np.minimum(first + second, IMPOSSIBLE)
    return total
