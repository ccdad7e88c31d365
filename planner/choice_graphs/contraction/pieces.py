"""What the options of a group use, piece by piece of the time."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stagecut.planner.choice_graphs.contraction.contract import ContractedGraph
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE
from stagecut.planner.choice_graphs.moments import Moments, find_moments
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.compiled import compiled


@dataclass(frozen=True, kw_only=True, eq=False)
class UsagePieces:
    """At every moment the amounts of the chosen options of all groups must not exceed the room.

    A piece is a run of moments with the same nodes of a group alive; pieces of a group do not overlap.
    """

    time: Ints
    """(moments,): only those that can overflow and are not implied by another."""
    room: Ints
    """(moments,): the limit less the least usages of all nodes."""
    first_piece: Ints
    """(groups + 1,): pieces of group g are first_piece[g] up to first_piece[g + 1], in order of time."""
    begin: Ints
    """(pieces,): the first moment, by its place in `time`,"""
    end: Ints
    """(pieces,): and the first after."""
    first_amount: Ints
    """(pieces + 1,): a piece has an amount for each option of its group."""
    amount: Ints
    """(amounts,): usage above the least usages of the nodes; at least 0."""

    @property
    def num_moments(self) -> int:
        """Moments that can overflow."""
        return len(self.time)


def usage_pieces(contracted: ContractedGraph) -> UsagePieces:
    """Add up the usages of the nodes of every group over the moments that matter."""
    graph, supported = contracted.graph, contracted.supported()
    moments = find_moments(replace(graph, cost=np.where(supported, graph.cost, IMPOSSIBLE)))
    member = np.flatnonzero(moments.begin < moments.end)
    group, begin, end = contracted.groups.group[member], moments.begin[member], moments.end[member]
    cuts = np.unique(np.concatenate([_key(group, begin, moments), _key(group, end, moments)]))
    changes = _Changes(
        np.searchsorted(cuts, _key(group, begin, moments)),
        np.searchsorted(cuts, _key(group, end, moments)),
        *_amounts(contracted, moments.least_usage, member),
    )
    cut_group, cut_time = np.divmod(cuts, moments.num_moments + 1)
    length = contracted.pairs.num_options[cut_group]
    first_amount = np.concatenate([[0], np.cumsum(length)])
    amount = np.zeros(first_amount[-1], dtype=np.int64)
    _add_up(changes, cut_group, first_amount, amount)
    used = np.maximum.reduceat(amount, first_amount[:-1]) > 0 if len(cuts) else np.zeros(0, dtype=np.bool_)
    return UsagePieces(
        time=moments.time,
        room=moments.room,
        first_piece=np.searchsorted(cut_group[used], np.arange(contracted.pairs.num_nodes + 1)),
        begin=cut_time[used],
        end=np.append(cut_time[1:], 0)[used],
        first_amount=np.concatenate([[0], np.cumsum(length[used])]),
        amount=amount[np.repeat(used, length)],
    )


class _Changes(NamedTuple):
    """Of every member, the cuts where it begins and ends, and what it uses per option of its group."""

    begin: Ints
    end: Ints
    first: Ints
    used: Ints


def _key(group: Ints, moment: Ints, moments: Moments) -> Ints:
    """Orders moments by group."""
    return group * (moments.num_moments + 1) + moment


def _amounts(contracted: ContractedGraph, least_usage: Ints, member: Ints) -> tuple[Ints, Ints]:
    """First (members + 1,) and usage above the least of every member, per option of its group."""
    length = np.diff(contracted.groups.first_map)[member]
    first = np.concatenate([[0], np.cumsum(length)])
    at = np.arange(first[-1]) + np.repeat(contracted.groups.first_map[member] - first[:-1], length)
    used = contracted.graph.usage[
        np.repeat(contracted.graph.first_option[member], length) + contracted.groups.option[at]
    ]
    return first, used - np.repeat(least_usage[member], length)


@compiled
def _add_up(changes: _Changes, group: Ints, first_amount: Ints, amount: Ints) -> None:
    """Add what begins and subtract what ends at every cut, then sum up over the cuts of each group."""
    for m in range(len(changes.begin)):
        begin, end = first_amount[changes.begin[m]], first_amount[changes.end[m]]
        for p in range(changes.first[m + 1] - changes.first[m]):
            amount[begin + p] += changes.used[changes.first[m] + p]
            amount[end + p] -= changes.used[changes.first[m] + p]
    for cut in range(1, len(group)):
        if group[cut] == group[cut - 1]:
            width = first_amount[cut] - first_amount[cut - 1]
            for at in range(first_amount[cut], first_amount[cut + 1]):
                amount[at] += amount[at - width]
