"""Dual ascent on a graph of pairs: costs move along edges until the sum of the least costs is large.

A message d_ei moves cost from edge e to node i: the costs of node i become theta_i + sum_e d_ei, those of edge
e = (i, j) become T_e - d_ei - d_ej. Every choice costs what it did before, so the sum of the least costs of all nodes
and edges is a lower bound for any messages; its largest value is that of the strong linear relaxation.

One sweep visits the nodes in order. A node takes all it can from its edges to earlier nodes (their tables keep a
least value of 0 in every row of its own), then divides what it has evenly among its edges to later ones; then the
same backwards. That is sequential reweighted message passing (Kolmogorov, PAMI 2015), for pairs the same as TRW-S
(PAMI 2006): the bound never falls, but for what is lost as messages are rounded to whole numbers.
"""

from typing import NamedTuple

import numpy as np

from stagecut.planner.choice_graphs.bounds.scaled import Table
from stagecut.planner.choice_graphs.bounds.tree import joined, offsets
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled


class Core(NamedTuple):
    """Nodes and both directions of every edge, laid out in the order in which a sweep reads them."""

    first_state: Ints
    """(nodes + 1,)"""
    first_arc: Ints
    """(nodes + 1,): arcs into node i are first_arc[i] up to first_arc[i + 1], by ascending tail."""
    num_before: Ints
    """(nodes,): how many of them come from earlier nodes."""
    tail: Ints
    """(arcs,)"""
    reverse: Ints
    """(arcs,): the arc the other way."""
    first_pair: Ints
    """(arcs + 1,)"""
    pair_cost: Floats
    """Tables of states of the tail by states of the head, row by row."""
    first_message: Ints
    """(arcs + 1,): where the message to the head of each arc is; as many numbers as the head has states."""


def lay_out(tables: list[dict[int, Table]], num_states: list[int]) -> Core:
    """Arrays of a graph given as tables[u][v], states of u by states of v, on nodes 0, 1, ..."""
    arcs = [(tail, head) for head in range(len(tables)) for tail in sorted(tables[head])]
    place = {arc: at for at, arc in enumerate(arcs)}
    in_order = [np.ascontiguousarray(tables[tail][head]) for tail, head in arcs]
    heads = np.array([head for _, head in arcs], dtype=np.int64)
    tails = np.array([tail for tail, _ in arcs], dtype=np.int64)
    states = np.array(num_states, dtype=np.int64)
    return Core(
        first_state=np.concatenate(([0], np.cumsum(states))),
        first_arc=np.searchsorted(heads, np.arange(len(tables) + 1)),
        num_before=np.bincount(heads[tails < heads], minlength=len(tables)),
        tail=tails,
        reverse=np.array([place[head, tail] for tail, head in arcs], dtype=np.int64),
        first_pair=offsets(in_order),
        pair_cost=joined(in_order),
        first_message=np.concatenate(([0], np.cumsum(states[heads]))),
    )


@compiled
def sweep(core: Core, cost: Floats, message: Floats, *, forward: bool) -> float:
    """Improve the messages once; return the bound reached, up to rounding."""
    total = 0.0
    num_nodes = len(core.first_state) - 1
    for step in range(num_nodes):
        node = step if forward else num_nodes - 1 - step
        begin, end = core.first_arc[node], core.first_arc[node + 1]
        middle = begin + core.num_before[node]
        taken, given = ((begin, middle), (middle, end)) if forward else ((middle, end), (begin, middle))
        for arc in range(taken[0], taken[1]):
            _take(core, arc, message)
        have = _costs_at(core, node, cost, message)
        num_given = given[1] - given[0]
        share = np.floor(have / max(num_given, taken[1] - taken[0], 1))
        for arc in range(given[0], given[1]):
            message[core.first_message[arc] : core.first_message[arc + 1]] -= share
        total += (have - num_given * share).min()
    return total


@compiled
def _take(core: Core, arc: int, message: Floats) -> None:
    """Make a message as large as its edge allows."""
    back = core.reverse[arc]
    ours = message[core.first_message[arc] : core.first_message[arc + 1]]
    theirs = message[core.first_message[back] : core.first_message[back + 1]]
    width = len(ours)
    ours[:] = np.inf
    for p in range(len(theirs)):
        row = core.first_pair[arc] + p * width
        for q in range(width):
            value = core.pair_cost[row + q] - theirs[p]
            ours[q] = value if value < ours[q] else ours[q]


@compiled
def _costs_at(core: Core, node: int, cost: Floats, message: Floats) -> Floats:
    """What the states of a node cost with all messages to it."""
    have = cost[core.first_state[node] : core.first_state[node + 1]].copy()
    for arc in range(core.first_arc[node], core.first_arc[node + 1]):
        have += message[core.first_message[arc] : core.first_message[arc + 1]]
    return have


@compiled
def bound_of(core: Core, cost: Floats, message: Floats) -> float:
    """Sum the least costs of all nodes and edges: a lower bound for any messages of whole numbers.

    Returns
    -------
    float
        -inf if a partial sum might have been too large (2^53) for floats to hold exactly.
    """
    largest = np.abs(message).max() if len(message) else 0.0
    size = total = 0.0
    for node in range(len(core.first_state) - 1):
        begin, end = core.first_arc[node], core.first_arc[node + 1]
        own = cost[core.first_state[node] : core.first_state[node + 1]]
        least = _costs_at(core, node, cost, message).min()
        total, size = total + least, size + abs(least)
        if np.abs(own).max() + (end - begin) * largest > 2.0**52:
            return -np.inf
        for arc in range(begin, begin + core.num_before[node]):
            least = _least_pair(core, arc, message)
            total, size = total + least, size + abs(least)
    return total if max(size, 4 * largest) < 2.0**52 else -np.inf


@compiled
def _least_pair(core: Core, arc: int, message: Floats) -> float:
    back = core.reverse[arc]
    ours = message[core.first_message[arc] : core.first_message[arc + 1]]
    theirs = message[core.first_message[back] : core.first_message[back + 1]]
    least = np.inf
    for p in range(len(theirs)):
        row = core.first_pair[arc] + p * len(ours)
        for q in range(len(ours)):
            value = core.pair_cost[row + q] - theirs[p] - ours[q]
            least = value if value < least else least
    return least


@compiled
def round_off(core: Core, cost: Floats, message: Floats) -> Ints:
    """After a backward sweep, a choice: node after node the best state, given those of the nodes before."""
    states = np.zeros(len(core.first_state) - 1, dtype=np.int64)
    for node in range(len(states)):
        have = cost[core.first_state[node] : core.first_state[node + 1]].copy()
        begin, end = core.first_arc[node], core.first_arc[node + 1]
        for arc in range(begin, begin + core.num_before[node]):
            row = core.first_pair[arc] + states[core.tail[arc]] * len(have)
            have += core.pair_cost[row : row + len(have)]
        for arc in range(begin + core.num_before[node], end):
            have += message[core.first_message[arc] : core.first_message[arc + 1]]
        states[node] = have.argmin()
    return states
