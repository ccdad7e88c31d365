"""Costs of groups, and tables between them."""

import numpy as np

from stagecut.planner.choice_graphs.contraction.tables import Groups, Tables, tables_of
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.numerics.arrays import Bools, Ints
from stagecut.planner.core.numerics.compiled import compiled


def grouped_graph(graph: ChoiceGraph, groups: Groups) -> ChoiceGraph:
    """The graph of the groups: costs of nodes and edges inside a group per option, tables between two per pair.

    Tables that are then a cost per row plus one per column become costs of the groups.
    """
    first_node = np.unique(groups.group, return_index=True)[1]
    first_option = np.concatenate([[0], np.cumsum(np.diff(groups.first_map)[first_node])])
    cost = np.zeros(first_option[-1], dtype=np.int64)
    ends, merged = _merged_ends(groups.group[graph.ends])
    first_pair = _first_pair(first_option, ends)
    target = Tables(first_option, cost, ends, first_pair, np.zeros(first_pair[-1], dtype=np.int64))
    _add_nodes(tables_of(graph), groups, target)
    _add_edges(tables_of(graph), groups, merged, target)
    remain = ~_fold_sums(target)
    return ChoiceGraph(
        name=graph.name,
        first_option=first_option,
        cost=cost,
        usage=np.zeros_like(cost),
        start=np.zeros_like(first_node),
        stop=np.zeros_like(first_node),
        ends=ends[remain],
        first_pair=_first_pair(first_option, ends[remain]),
        pair_cost=target.pair_cost[np.repeat(remain, np.diff(first_pair))],
        usage_limit=graph.usage_limit,
    )


def _merged_ends(ends: Ints) -> tuple[Ints, Ints]:
    """Groups (u < v) connected by an edge, and for every edge the number of its pair; -1 inside a group."""
    low, high = np.minimum(ends[:, 0], ends[:, 1]), np.maximum(ends[:, 0], ends[:, 1])
    between = low < high
    pairs, number = np.unique(np.stack([low[between], high[between]], axis=1), axis=0, return_inverse=True)
    merged = np.full(len(ends), -1)
    merged[between] = number.ravel()
    return pairs, merged


def _first_pair(first_option: Ints, ends: Ints) -> Ints:
    num_options = np.diff(first_option)
    first: Ints = np.concatenate([[0], np.cumsum(num_options[ends[:, 0]] * num_options[ends[:, 1]])])
    return first


@compiled
def _add_nodes(tables: Tables, groups: Groups, target: Tables) -> None:
    """Costs of options add up in their groups; impossible stays impossible."""
    for v in range(len(groups.group)):
        for p in range(groups.first_map[v + 1] - groups.first_map[v]):
            at = target.first_option[groups.group[v]] + p
            own = tables.cost[tables.first_option[v] + groups.option[groups.first_map[v] + p]]
            target.cost[at] = min(target.cost[at] + own, IMPOSSIBLE)


@compiled
def _add_edges(tables: Tables, groups: Groups, merged: Ints, target: Tables) -> None:
    """Add every table where it belongs, turned if its groups come in the other order."""
    for e in range(len(merged)):
        u, v = tables.ends[e]
        group = groups.group[u]
        options_u = groups.option[groups.first_map[u] : groups.first_map[u + 1]]
        options_v = groups.option[groups.first_map[v] : groups.first_map[v + 1]]
        width = tables.first_option[v + 1] - tables.first_option[v]
        if merged[e] < 0:
            for p in range(len(options_u)):
                at = target.first_option[group] + p
                pair = tables.pair_cost[tables.first_pair[e] + options_u[p] * width + options_v[p]]
                target.cost[at] = min(target.cost[at] + pair, IMPOSSIBLE)
            continue
        step_u, step_v = (len(options_v), 1) if group == target.ends[merged[e], 0] else (1, len(options_u))
        for p in range(len(options_u)):
            row = tables.first_pair[e] + options_u[p] * width
            for q in range(len(options_v)):
                at = target.first_pair[merged[e]] + p * step_u + q * step_v
                target.pair_cost[at] = min(target.pair_cost[at] + tables.pair_cost[row + options_v[q]], IMPOSSIBLE)


@compiled
def _fold_sums(target: Tables) -> Bools:
    """Add tables that are a cost per row plus one per column to the costs of the options; which ones were."""
    folded = np.zeros(len(target.ends), dtype=np.bool_)
    for e in range(len(folded)):
        u, v = target.ends[e]
        mine = target.cost[target.first_option[u] : target.first_option[u + 1]]
        theirs = target.cost[target.first_option[v] : target.first_option[v + 1]]
        table = target.pair_cost[target.first_pair[e] : target.first_pair[e + 1]].reshape((len(mine), len(theirs)))
        if _is_sum(table):
            for q in range(len(theirs)):
                theirs[q] = min(theirs[q] + table[0, q] - table[0].min(), IMPOSSIBLE)
            for p in range(len(mine)):
                mine[p] = min(mine[p] + table[p].min(), IMPOSSIBLE)
            folded[e] = True
    return folded


@compiled
def _is_sum(table: Ints) -> bool:
    """Whether all pairs are possible and the rows differ by constants."""
    for p in range(table.shape[0]):
        for q in range(table.shape[1]):
            if table[p, q] >= IMPOSSIBLE or table[p, q] - table[p, 0] != table[0, q] - table[0, 0]:
                return False
    return True
