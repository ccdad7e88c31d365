"""A choice graph with whole numbers in floats, option by option and table by table."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled

Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaled:
    """Costs of the options that remain, rounded down to whole multiples of 2^-scale_bits; impossible is infinite.

    Whole numbers below 2^53 are exact in floats, and so are their sums below that.
    """

    scale_bits: int
    option: Ints
    """(remaining options,): their place among the options of the graph."""
    first_option: Ints
    """(nodes + 1,): where the remaining options of each node begin."""
    cost: Floats
    """(remaining options,), changed when edges of fixed nodes are folded into their neighbours."""
    tables: list[dict[int, Table]]
    """tables[u][v]: options of u by options of v; tables[v][u] is the same transposed."""


def scale(graph: ChoiceGraph, kept: Bools, *, scale_bits: int) -> Scaled:
    """Scale what remains; nodes with a single option give their edges to their neighbours.

    Every node must keep an option, and every option a partner at each neighbour.
    """
    option = np.flatnonzero(kept)
    first = np.searchsorted(option, graph.first_option)
    flat, first_pair = _flat_tables(graph, option, first, scale_bits)
    cost = np.floor(np.ldexp(graph.cost[option].astype(np.float64), scale_bits))
    tables: list[dict[int, Table]] = [{} for _ in range(graph.num_nodes)]
    num_options = np.diff(first)
    for edge, (u, v) in enumerate(graph.ends.tolist()):
        table = flat[first_pair[edge] : first_pair[edge + 1]].reshape(num_options[u], num_options[v])
        if num_options[u] > 1 and num_options[v] > 1:
            tables[u][v], tables[v][u] = table, table.T
        elif num_options[u] == 1:
            cost[first[v] : first[v + 1]] += table[0]
        else:
            cost[first[u] : first[u + 1]] += table[:, 0]
    return Scaled(scale_bits=scale_bits, option=option, first_option=first, cost=cost, tables=tables)


def _flat_tables(graph: ChoiceGraph, option: Ints, first: Ints, scale_bits: int) -> tuple[Floats, Ints]:
    num_options = np.diff(first)
    sizes = num_options[graph.ends[:, 0]] * num_options[graph.ends[:, 1]]
    first_pair = np.concatenate(([0], np.cumsum(sizes)))
    flat = np.empty(first_pair[-1], dtype=np.float64)
    local = option - np.repeat(graph.first_option[:-1], num_options)
    _copy(graph.num_options, graph.ends, graph.first_pair, graph.pair_cost, local, first, first_pair, flat)
    np.ldexp(flat, scale_bits, out=flat)
    return np.floor(flat, out=flat), first_pair


@compiled
def _copy(
    width: Ints,
    ends: Ints,
    first_pair: Ints,
    pair_cost: Ints,
    local: Ints,
    first: Ints,
    first_kept: Ints,
    kept: Floats,
) -> None:
    for e in range(len(ends)):
        u, v = ends[e]
        at = first_kept[e]
        for p in local[first[u] : first[u + 1]]:
            row = first_pair[e] + p * width[v]
            for q in local[first[v] : first[v + 1]]:
                value = pair_cost[row + q]
                kept[at] = np.inf if value >= IMPOSSIBLE else float(value)
                at += 1
