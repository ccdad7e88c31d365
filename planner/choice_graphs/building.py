"""Raw arrays checked and merged into a graph with u < v on every edge, no loop, and no pair of nodes twice."""

from collections.abc import Callable

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.arrays import Bools, Ints
from stagecut.planner.core.errors import BadInputError

LARGEST_TOTAL = 2**62
"""Dearest possible options and pairs must add up to less, largest usages as well: so no sum overflows 64 bits."""


def build(
    *,
    name: str,
    first_option: Ints,
    cost: Ints,
    usage: Ints,
    start: Ints,
    stop: Ints,
    ends: Ints,
    first_pair: Ints,
    pair_cost: Ints,
    usage_limit: int,
) -> ChoiceGraph:
    """Check raw arrays and merge them: loops into node costs, parallel edges into one, turned so that u < v.

    Parameters
    ----------
    ends, first_pair, pair_cost
        Edges in any direction; the table of (u, v) is (options of u) x (options of v), row by row.

    Raises
    ------
    BadInputError
        With a line for every kind of fault and the first place where it occurs.
    """
    _check(
        _fault("nodes.intervals", stop < start, lambda i: f"[{start[i]}, {stop[i]}) ends before it begins"),
        _fault("nodes.costs", np.diff(first_option) == 0, lambda _: "no options; a node needs at least one"),
        _fault("nodes.costs", _in_row(cost < 0, first_option), lambda _: "a negative cost"),
        _fault("nodes.usages", _in_row(usage < 0, first_option), lambda _: "a negative usage"),
        "" if usage_limit >= 0 else f"usage_limit: got {usage_limit}, which is negative",
    )
    num_nodes, num_options = len(first_option) - 1, np.diff(first_option)
    outside = (ends < 0) | (ends >= num_nodes)
    nowhere: Bools = outside[:, 0] | outside[:, 1]
    _check(
        _fault(
            "edges.nodes",
            nowhere,
            lambda e: f"{ends[e].tolist()} leads to node {ends[e][outside[e]][0]}; nodes are 0 to {num_nodes - 1}",
        )
    )
    sizes = num_options[ends[:, 0]] * num_options[ends[:, 1]]
    got = np.diff(first_pair)
    _check(
        _fault(
            "edges.costs",
            got != sizes,
            lambda e: (
                f"{got[e]} costs for the {num_options[ends[e, 0]]} x {num_options[ends[e, 1]]} pairs of "
                f"options of nodes {ends[e, 0]} and {ends[e, 1]}"
            ),
        ),
        _fault("edges.costs", _in_row(pair_cost < 0, first_pair), lambda _: "a negative cost"),
    )
    cost, pair_cost = np.minimum(cost, IMPOSSIBLE), np.minimum(pair_cost, IMPOSSIBLE)
    largest_cost = _sum_of_largest(np.where(cost < IMPOSSIBLE, cost, 0), first_option)
    largest_cost += _sum_of_largest(np.where(pair_cost < IMPOSSIBLE, pair_cost, 0), first_pair)
    _check(
        _too_large("dearest possible options and pairs cost", largest_cost),
        _too_large("largest usages are", _sum_of_largest(usage, first_option)),
    )
    cost, ends, first_pair, pair_cost = _merge(first_option, cost, ends, first_pair, pair_cost)
    return ChoiceGraph(
        name=name,
        first_option=first_option,
        cost=cost,
        usage=usage,
        start=start,
        stop=stop,
        ends=ends,
        first_pair=first_pair,
        pair_cost=pair_cost,
        usage_limit=usage_limit,
    )


def plus(first: Ints, second: Ints) -> Ints:
    """The sum of two arrays of costs, where what is impossible stays so."""
    impossible = (first >= IMPOSSIBLE) | (second >= IMPOSSIBLE)
    total: Ints = np.where(impossible, IMPOSSIBLE, first + second)
    if np.any(~impossible & (total >= IMPOSSIBLE)):
        raise BadInputError(f"costs of loops or parallel edges add up to {IMPOSSIBLE:.0e} or more, which is impossible")
    return total


def _merge(
    first_option: Ints, cost: Ints, ends: Ints, first_pair: Ints, pair_cost: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    # Almost all edges are plain: only the others are touched one by one.
    turned, loops = ends[:, 0] > ends[:, 1], ends[:, 0] == ends[:, 1]
    ends = np.sort(ends, axis=1)
    pair_ids = ends[:, 0] * (len(first_option) - 1) + ends[:, 1]
    kept = np.sort(np.unique(pair_ids[~loops], return_index=True)[1])
    kept = np.flatnonzero(~loops)[kept]
    if len(kept) == len(ends) and not turned.any():
        return cost, ends, first_pair, pair_cost
    num_options = np.diff(first_option)

    def table(edge: int) -> Ints:
        u, v = ends[edge]
        flat = pair_cost[first_pair[edge] : first_pair[edge + 1]]
        if turned[edge]:
            return flat.reshape(num_options[v], num_options[u]).T
        return flat.reshape(num_options[u], num_options[v])

    cost = cost.copy()
    for edge in np.flatnonzero(loops).tolist():
        own = slice(first_option[ends[edge, 0]], first_option[ends[edge, 0] + 1])
        cost[own] = plus(cost[own], np.diagonal(table(edge)))
    new_first = np.concatenate(([0], np.cumsum(np.diff(first_pair)[kept])))
    place = np.full(len(ends), -1)
    place[kept] = np.arange(len(kept))
    by_pair = dict(zip(pair_ids[kept].tolist(), kept.tolist(), strict=True))
    merged = np.zeros(new_first[-1], dtype=np.int64)
    for edge in np.flatnonzero(~loops).tolist():
        into = place[by_pair[int(pair_ids[edge])]]
        there = slice(new_first[into], new_first[into + 1])
        flat = table(edge).ravel()
        merged[there] = flat if place[edge] == into else plus(merged[there], flat)
    return cost, ends[kept], new_first, merged


def _check(*faults: str) -> None:
    found = [fault for fault in faults if fault]
    if found:
        raise BadInputError(*found)


def _fault(table: str, bad: Bools, text: Callable[[int], str]) -> str:
    """The first bad row of a table as one line, and how many more there are; empty if there is none."""
    rows = np.flatnonzero(bad)
    if len(rows) == 0:
        return ""
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return f"{table}[{rows[0]}]: {text(int(rows[0]))}{more}"


def _in_row(bad: Bools, first: Ints) -> Bools:
    """Which rows of a ragged table hold a bad entry."""
    counts = np.concatenate(([0], np.cumsum(bad)))
    rows: Bools = np.diff(counts[first]) > 0
    return rows


def _too_large(what: str, total: int) -> str:
    return "" if total < LARGEST_TOTAL else f"the {what} {total} together, 2^62 or more; give them in a larger unit"


def _sum_of_largest(values: Ints, first: Ints) -> int:
    return sum(np.maximum.reduceat(values, first[:-1]).tolist()) if len(first) > 1 else 0
