"""Loops, edges the wrong way round, and several edges between the same nodes: made one plain edge, or none."""

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Ints


def merge(
    first_option: Ints, cost: Ints, ends: Ints, first_pair: Ints, pair_cost: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return costs of options, ends, first pairs and pair costs with u < v on every edge and no pair of nodes twice.

    Works in place on `pair_cost`, since that may fill most of the memory.
    """
    num_options = np.diff(first_option)
    _turn(num_options, ends, first_pair, pair_cost)
    ends = np.sort(ends, axis=1)
    loops = ends[:, 0] == ends[:, 1]
    cost = cost.copy()
    for edge in np.flatnonzero(loops).tolist():
        node = ends[edge, 0]
        own = slice(first_option[node], first_option[node + 1])
        diagonal = pair_cost[first_pair[edge] : first_pair[edge + 1] : num_options[node] + 1]
        cost[own] = plus(cost[own], diagonal)
    kept = _add_parallel(ends, loops, first_pair, pair_cost)
    if len(kept) == len(ends):
        return cost, ends, first_pair, pair_cost
    first_kept, pair_cost = _compact(kept, first_pair, pair_cost)
    return cost, ends[kept], first_kept, pair_cost


def plus(first: Ints, second: Ints) -> Ints:
    """The sum of two arrays of costs, where what is impossible stays so.

    Raises
    ------
    BadInputError
        If a sum of possible costs looks impossible.
    """
    impossible = (first >= IMPOSSIBLE) | (second >= IMPOSSIBLE)
    total: Ints = np.where(impossible, IMPOSSIBLE, first + second)
    if np.any(~impossible & (total >= IMPOSSIBLE)):
        raise BadInputError(f"edges.costs: loops or parallel edges add up to {IMPOSSIBLE:.0e}, which means impossible")
    return total


def _turn(num_options: Ints, ends: Ints, first_pair: Ints, pair_cost: Ints) -> None:
    """Transpose the tables of edges that lead to a smaller node."""
    for edge in np.flatnonzero(ends[:, 0] > ends[:, 1]).tolist():
        flat = pair_cost[first_pair[edge] : first_pair[edge + 1]]
        flat[:] = flat.reshape(num_options[ends[edge, 0]], -1).T.ravel()


def _add_parallel(ends: Ints, loops: np.typing.NDArray[np.bool_], first_pair: Ints, pair_cost: Ints) -> Ints:
    """Add every edge to the first one between the same nodes; return the edges that remain."""
    plain = np.flatnonzero(~loops)
    if len(plain) == 0:
        return plain
    _, earliest, group = np.unique(ends[plain], axis=0, return_index=True, return_inverse=True)
    into = plain[earliest[group.ravel()]]
    for edge, first in zip(plain[into != plain].tolist(), into[into != plain].tolist(), strict=True):
        there = pair_cost[first_pair[first] : first_pair[first + 1]]
        there[:] = plus(there, pair_cost[first_pair[edge] : first_pair[edge + 1]])
    kept: Ints = plain[into == plain]
    return kept


def _compact(kept: Ints, first_pair: Ints, pair_cost: Ints) -> tuple[Ints, Ints]:
    """Move the tables that remain to the front, run by run."""
    first_kept = np.concatenate(([0], np.cumsum(np.diff(first_pair)[kept])))
    for edge, place in zip(kept.tolist(), first_kept.tolist(), strict=False):
        begin, end = int(first_pair[edge]), int(first_pair[edge + 1])
        if begin != place:
            pair_cost[place : place + end - begin] = pair_cost[begin:end]
    return first_kept, pair_cost[: int(first_kept[-1])]
