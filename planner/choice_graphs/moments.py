"""The moments at which usage can exceed the limit: a few that imply all others."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.numerics.arrays import Bools, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Rows sum over members v of (usage of v's option - least_usage[v]) <= room, one per moment."""

    time: Ints
    """(moments,): in ascending order."""
    room: Ints
    """(moments,): the limit less the least usages of all nodes alive; negative if the limit cannot be met."""
    begin: Ints
    """(nodes,): the first of these moments at which a node is alive,"""
    end: Ints
    """(nodes,): and the first after; a node is a member of the moments begin up to end if its usage varies."""
    least_usage: Ints
    """(nodes,): among the possible options."""

    @property
    def num_moments(self) -> int:
        """Moments that can overflow."""
        return len(self.time)

    def members(self) -> tuple[Ints, Ints]:
        """First (moments + 1,) and member: nodes of moment t are member[first[t] : first[t + 1]], ascending.

        On a graph of 65,000 nodes that can be 1e8 memberships; a running sum over `begin` and `end` is the better way
        to add over members or over moments there.
        """
        lengths = self.end - self.begin
        node = np.repeat(np.arange(len(lengths)), lengths)
        moment = np.arange(len(node)) + np.repeat(self.begin - np.cumsum(lengths) + lengths, lengths)
        by_moment = np.argsort(moment, kind="stable")
        return np.searchsorted(moment[by_moment], np.arange(self.num_moments + 1)), node[by_moment]


def find_moments(graph: ChoiceGraph) -> Moments:
    """Moments whose rows imply those of all others.

    Only at the start of a node does usage grow, so starts suffice. Of those, the ones remain where the largest usages
    exceed the limit, and whose members and room are not implied by an earlier or later one: between two moments a
    node leaves only if it stops, and joins only if it starts.
    """
    least, most = usage_range(graph)
    alive = graph.start < graph.stop
    time = np.unique(graph.start[alive])
    room = graph.usage_limit - _load(time, graph, np.where(alive, least, 0))
    excess = _load(time, graph, np.where(alive, most - least, 0)) - room
    time, room = time[excess > 0], room[excess > 0]
    varies = alive & (most > least)
    kept = _not_implied(time, room, np.sort(graph.start[varies]), np.sort(graph.stop[varies]))
    time, room = time[kept], room[kept]
    begin, end = np.searchsorted(time, graph.start), np.searchsorted(time, graph.stop)
    end = np.maximum(np.where(varies, end, begin), begin)
    return Moments(time=time, room=room, begin=begin, end=end, least_usage=least)


def usage_range(graph: ChoiceGraph) -> tuple[Ints, Ints]:
    """Least and largest usage of every node among its possible options (among all, if none is possible)."""
    first = graph.first_option[:-1]
    if len(first) == 0:
        return first, first
    possible = graph.cost < IMPOSSIBLE
    possible |= np.repeat(~np.logical_or.reduceat(possible, first), graph.num_options)
    least: Ints = np.minimum.reduceat(np.where(possible, graph.usage, np.iinfo(np.int64).max), first)
    most: Ints = np.maximum.reduceat(np.where(possible, graph.usage, -1), first)
    return least, most


def _load(time: Ints, graph: ChoiceGraph, amount: Ints) -> Ints:
    """The sum of an amount per node over the nodes alive, at every one of the ascending moments."""
    change = np.zeros(len(time) + 1, dtype=np.int64)
    np.add.at(change, np.searchsorted(time, graph.start), amount)
    np.subtract.at(change, np.searchsorted(time, graph.stop), amount)
    load: Ints = np.cumsum(change)[:-1]
    return load


def _not_implied(time: Ints, room: Ints, starts: Ints, stops: Ints) -> Bools:
    """Which moments remain when each is compared with its neighbours among those that remain."""
    started, stopped = np.searchsorted(starts, time, side="right"), np.searchsorted(stops, time, side="right")
    kept: list[int] = []
    for moment in range(len(time)):
        while kept and stopped[kept[-1]] == stopped[moment] and room[kept[-1]] >= room[moment]:
            kept.pop()
        if not (kept and started[kept[-1]] == started[moment] and room[kept[-1]] <= room[moment]):
            kept.append(moment)
    remains = np.zeros(len(time), dtype=np.bool_)
    remains[kept] = True
    return remains
