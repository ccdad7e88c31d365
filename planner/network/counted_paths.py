"""Cheapest paths through a stage network that open no more hosts than there are.

Labels live on (node, hosts opened so far per class): exact, and exponential in the number of classes.
"""

import math
from dataclasses import dataclass

import numpy as np

from planner.cost.plan_costs import Floats, Ints
from planner.network.arcs import Bools
from planner.network.stage_network import StageNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What arcs cost, and how long a path may be where it takes an arc.

    Two lengths are kept per path, the round trip and the forward part; each label holds the least
    of either, which need not be the same path's.
    """

    round_trip: Floats
    forward: Floats
    latest_round_trip: Floats
    """Largest round trip before the arc at which the arc may still be taken, shape (A,)."""
    latest_forward: Floats
    """The same for the forward part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """Arcs into the nodes of one level, grouped by node."""

    arcs: Ints
    tails: Ints
    begins: Ints
    heads: Ints
    sources: Ints | None
    """Count state at the tail for each count state at the head, shape (n, H); None: the same."""


class CountedPaths:
    """Label setting over nodes and opened hosts.

    Count states number the vectors of hosts opened per class in mixed radix, H = prod (N_h + 1).
    """

    def __init__(self, network: StageNetwork) -> None:
        arcs, graph = network.arcs, network.graph
        self._network = network
        nodes, compact = np.unique(np.concatenate((arcs.tail, arcs.head)), return_inverse=True)
        self._tail, self._head = compact[: len(arcs)], compact[len(arcs) :]
        self._num_nodes = len(nodes)
        counts = np.array([server.count + 1 for server in network.cluster.servers])
        self._strides = np.concatenate(([1], np.cumprod(counts)[:-1]))
        self._counts = counts
        self._levels = self._group(graph.level[nodes])

    @staticmethod
    def size(network: StageNetwork) -> int:
        """Labels that would be kept: nodes times count states."""
        states = math.prod(server.count + 1 for server in network.cluster.servers)
        return len(np.union1d(network.arcs.tail, network.arcs.head)) * states

    @property
    def num_states(self) -> int:
        """H."""
        return int(np.prod(self._counts))

    def cheapest(self, criteria: Criteria, usable: Bools) -> Ints | None:
        """Arcs of a path of least round trip over usable arcs, each taken in time; None if there is none.

        Where the two lengths of a label stem from different paths, the path found may be late for
        some arc; its length is still a lower bound.
        """
        round_trip = np.full((self._num_nodes, self.num_states + 1), np.inf)
        forward = np.full_like(round_trip, np.inf)
        round_trip[0, 0] = forward[0, 0] = 0.0
        for level in self._levels:
            before, before_forward = self._at_tails(level, round_trip), self._at_tails(level, forward)
            late = before > criteria.latest_round_trip[level.arcs, None]
            late |= before_forward > criteria.latest_forward[level.arcs, None]
            late |= ~usable[level.arcs, None]
            for labels, reached, length in (
                (round_trip, before, criteria.round_trip),
                (forward, before_forward, criteria.forward),
            ):
                reached = np.where(late, np.inf, reached + length[level.arcs, None])
                labels[level.heads, :-1] = np.minimum.reduceat(reached, level.begins, axis=0)
        return self._walk_back(round_trip, forward, criteria, usable)

    def _at_tails(self, level: _Level, labels: Floats) -> Floats:
        if level.sources is None:
            return labels[level.tails, :-1]
        return labels[level.tails[:, None], level.sources]

    def _walk_back(self, round_trip: Floats, forward: Floats, criteria: Criteria, usable: Bools) -> Ints | None:
        node, state = self._num_nodes - 1, int(np.argmin(round_trip[-1, :-1]))
        if not np.isfinite(round_trip[node, state]):
            return None
        order = np.argsort(self._head, kind="stable")
        first = np.searchsorted(self._head[order], np.arange(self._num_nodes + 1))
        path = []
        while node != 0:
            arcs = order[first[node] : first[node + 1]]
            sources = self._sources(arcs)[:, state]
            before = round_trip[self._tail[arcs], sources]
            late = (before > criteria.latest_round_trip[arcs]) | ~usable[arcs]
            late |= forward[self._tail[arcs], sources] > criteria.latest_forward[arcs]
            best = int(np.argmin(np.where(late, np.inf, before + criteria.round_trip[arcs])))
            path.append(arcs[best])
            node, state = int(self._tail[arcs[best]]), int(sources[best])
        return np.array(path[::-1])

    def _group(self, level: Ints) -> list[_Level]:
        order = np.argsort(self._head, kind="stable")
        head_levels = level[self._head[order]]
        cuts = np.flatnonzero(np.concatenate(([True], head_levels[1:] != head_levels[:-1])))
        return [self._level(arcs) for arcs in np.split(order, cuts[1:])]

    def _level(self, arcs: Ints) -> _Level:
        heads = self._head[arcs]
        begins = np.flatnonzero(np.concatenate(([True], heads[1:] != heads[:-1])))
        opens = (self._network.arcs.opened_hosts[arcs] > 0).any()
        return _Level(
            arcs=arcs,
            tails=self._tail[arcs],
            begins=begins,
            heads=heads[begins],
            sources=self._sources(arcs) if opens else None,
        )

    def _sources(self, arcs: Ints) -> Ints:
        """Count state before each arc for every count state after it; H, which is never reached, if none."""
        states = np.arange(self.num_states)
        columns = self._network.arcs
        classes, opened = columns.opened_class[arcs], columns.opened_hosts[arcs]
        used = (states[None, :] // self._strides[classes][:, None]) % self._counts[classes][:, None]
        before = states[None, :] - (opened * self._strides[classes])[:, None]
        return np.where(used >= opened[:, None], before, self.num_states)
