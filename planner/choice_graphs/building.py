"""Raw arrays checked, and turned into a graph."""

from collections.abc import Iterator

import numpy as np

from stagecut.planner.choice_graphs.faults import check, row_fault
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.choice_graphs.merging import merge
from stagecut.planner.core.numerics.arrays import Bools, Ints

LARGEST_TOTAL = 2**62
"""Dearest possible options and pairs must add up to less, largest usages as well: so no sum overflows 64 bits."""
_AT_ONCE = 1 << 22


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
        Edges in any direction; the table of (u, v) is (options of u) x (options of v), row by row. The largest array
        by far, `pair_cost` is not copied but taken over and changed.

    Raises
    ------
    BadInputError
        With a line for every kind of fault and the first place where it occurs.
    """
    check("" if len(first_option) > 1 else "nodes: none; a graph needs at least one")
    check(
        row_fault("nodes.intervals", stop < start, lambda v: f"[{start[v]}, {stop[v]}) ends before it begins"),
        row_fault("nodes.costs", np.diff(first_option) == 0, lambda _: "no options; a node needs at least one"),
        "" if usage_limit >= 0 else f"usage_limit: got {usage_limit}, which is negative",
    )
    check(
        _negative("nodes.costs", cost, first_option),
        _negative("nodes.usages", usage, first_option),
        _nowhere(ends, len(first_option) - 1),
    )
    check(_ragged(np.diff(first_option), ends, first_pair))
    check(_negative("edges.costs", pair_cost, first_pair))
    cost = np.minimum(cost, IMPOSSIBLE)
    np.minimum(pair_cost, IMPOSSIBLE, out=pair_cost)
    check(
        _too_large(
            "dearest possible options and pairs cost",
            _sum_of_dearest(cost, first_option) + _sum_of_dearest(pair_cost, first_pair),
        ),
        _too_large("largest usages are", sum(_largest(usage, first_option).tolist())),
    )
    cost, ends, first_pair, pair_cost = merge(first_option, cost, ends, first_pair, pair_cost)
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


def total_of_dearest(graph: ChoiceGraph) -> int:
    """No sum of possible costs, one per node and edge, is larger."""
    return _sum_of_dearest(graph.cost, graph.first_option) + _sum_of_dearest(graph.pair_cost, graph.first_pair)


def least_total(graph: ChoiceGraph) -> int:
    """No choice costs less: the least cost of every node and edge."""
    tables = ((graph.cost, graph.first_option), (graph.pair_cost, graph.first_pair))
    return sum(sum(np.minimum.reduceat(values, first[:-1]).tolist()) for values, first in tables if len(first) > 1)


def _negative(table: str, values: Ints, first: Ints) -> str:
    least = np.minimum.reduceat(values, first[:-1]) if len(first) > 1 else values
    return row_fault(table, least < 0, lambda row: f"{least[row]} is negative")


def _nowhere(ends: Ints, num_nodes: int) -> str:
    outside = (ends < 0) | (ends >= num_nodes)
    bad: Bools = outside[:, 0] | outside[:, 1]
    return row_fault(
        "edges.nodes",
        bad,
        lambda e: f"{ends[e].tolist()} leads to node {ends[e][outside[e]][0]}; nodes are 0 to {num_nodes - 1}",
    )


def _ragged(num_options: Ints, ends: Ints, first_pair: Ints) -> str:
    num_first, num_second = num_options[ends[:, 0]], num_options[ends[:, 1]]
    got = np.diff(first_pair)
    return row_fault(
        "edges.costs",
        got != num_first * num_second,
        lambda e: (
            f"{got[e]} costs for the {num_first[e]} x {num_second[e]} pairs of options of nodes "
            f"{ends[e, 0]} and {ends[e, 1]}"
        ),
    )


def _too_large(what: str, total: int) -> str:
    return "" if total < LARGEST_TOTAL else f"the {what} {total} together, 2^62 or more; give them in a larger unit"


def _sum_of_dearest(costs: Ints, first: Ints) -> int:
    return sum(
        sum(_largest(np.where(part < IMPOSSIBLE, part, 0), offsets).tolist()) for part, offsets in _parts(costs, first)
    )


def _parts(values: Ints, first: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Whole rows of a ragged table, a few at a time, so that intermediate arrays stay small."""
    row, rows = 0, len(first) - 1
    while row < rows:
        stop = max(row + 1, int(np.searchsorted(first, first[row] + _AT_ONCE)) - 1)
        yield values[first[row] : first[stop]], first[row : stop + 1] - first[row]
        row = stop


def _largest(values: Ints, first: Ints) -> Ints:
    """The largest value of every row; no row is empty."""
    largest: Ints = np.maximum.reduceat(values, first[:-1]) if len(first) > 1 else values
    return largest
