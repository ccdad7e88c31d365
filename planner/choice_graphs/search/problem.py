"""A contracted graph in the form that the compiled searches take."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.choice_graphs.contraction.contract import ContractedGraph
from stagecut.planner.choice_graphs.contraction.pieces import UsagePieces
from stagecut.planner.choice_graphs.contraction.tables import Tables, edges_by_node, tables_of
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.compiled import compiled


class Problem(NamedTuple):
    """Groups, their links to neighbours, and pieces of usage. Every edge is two links, one at either end."""

    first: Ints
    """(groups + 1,): options of group g are first[g] up to first[g + 1]."""
    cost: Ints
    """(options,)"""
    first_link: Ints
    """(groups + 1,)"""
    neighbour: Ints
    """(links,)"""
    back: Ints
    """(links,): the link of the neighbour that leads here."""
    first_pair: Ints
    """(links,): where the table begins: for every option of the neighbour a row of costs by option of the group."""
    pair_cost: Ints
    first_piece: Ints
    begin: Ints
    end: Ints
    first_amount: Ints
    amount: Ints
    room: Ints
    wall: int
    """What an impossible option or pair costs here: so little that no sum overflows. What costs more is not chosen."""


def problem_of(contracted: ContractedGraph, pieces: UsagePieces) -> Problem:
    """Links in both directions, with tables turned towards each end."""
    pairs = contracted.pairs
    first_link, edge = edges_by_node(pairs)
    owner = np.repeat(np.arange(pairs.num_nodes), np.diff(first_link))
    at_edge = np.argsort(edge, kind="stable").reshape(-1, 2)
    back = np.empty(len(edge), dtype=np.int64)
    back[at_edge[:, 0]], back[at_edge[:, 1]] = at_edge[:, 1], at_edge[:, 0]
    length = np.diff(pairs.first_pair)[edge]
    first_pair = np.concatenate([[0], np.cumsum(length)])
    wall = 2**60 // (int(np.diff(first_link).max(initial=0)) + 4)
    pair_cost = np.empty(first_pair[-1], dtype=np.int64)
    _turn(tables_of(pairs), owner, edge, first_pair, pair_cost)
    return Problem(
        first=pairs.first_option,
        cost=np.minimum(pairs.cost, wall),
        first_link=first_link,
        neighbour=pairs.ends[edge].sum(axis=1) - owner,
        back=back,
        first_pair=first_pair[:-1],
        pair_cost=np.minimum(pair_cost, wall, out=pair_cost),
        first_piece=pieces.first_piece,
        begin=pieces.begin,
        end=pieces.end,
        first_amount=pieces.first_amount,
        amount=pieces.amount,
        room=pieces.room,
        wall=wall,
    )


@compiled
def _turn(tables: Tables, owner: Ints, edge: Ints, first_pair: Ints, pair_cost: Ints) -> None:
    """Copy the table of every link, its rows those of the neighbour's options."""
    for link in range(len(edge)):
        u, v = tables.ends[edge[link]]
        num_u = tables.first_option[u + 1] - tables.first_option[u]
        num_v = tables.first_option[v + 1] - tables.first_option[v]
        source = tables.first_pair[edge[link]]
        step_u, step_v = (1, num_u) if owner[link] == u else (num_v, 1)
        for p in range(num_u):
            for q in range(num_v):
                pair_cost[first_pair[link] + p * step_u + q * step_v] = tables.pair_cost[source + p * num_v + q]
