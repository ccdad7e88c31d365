"""The graph of choices, as numpy arrays."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Ints

IMPOSSIBLE = 10**17
"""Costs of that much or more are never chosen. The graph stores them as exactly this."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceGraph:
    """Choose one option per node so that the costs of options and of pairs on edges add up to the least.

    At every moment the usages of the options chosen by the nodes alive then must not exceed the limit. All arrays are
    of 64-bit integers. Graphs of user data come from :func:`~stagecut.planner.choice_graphs.building.build`, which
    checks and merges; this class only holds.
    """

    name: str
    first_option: Ints
    """(nodes + 1,): options of node v are first_option[v] up to first_option[v + 1]."""
    cost: Ints
    """(options,)"""
    usage: Ints
    """(options,), at least 0."""
    start: Ints
    """(nodes,): the first moment at which a node is alive."""
    stop: Ints
    """(nodes,): the first moment after it; a node with stop == start is never alive."""
    ends: Ints
    """(edges, 2): u < v, each pair at most once."""
    first_pair: Ints
    """(edges + 1,): costs of edge e are first_pair[e] up to first_pair[e + 1]."""
    pair_cost: Ints
    """(pairs,): for every edge (u, v) a table (options of u) x (options of v), row by row."""
    usage_limit: int

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph."""
        return len(self.first_option) - 1

    @property
    def num_edges(self) -> int:
        """Edges of the graph."""
        return len(self.ends)

    @cached_property
    def num_options(self) -> Ints:
        """(nodes,): options of every node."""
        return np.diff(self.first_option)

    def options(self, node: int) -> slice:
        """Where `cost` and `usage` hold the options of a node."""
        return slice(int(self.first_option[node]), int(self.first_option[node + 1]))

    def table(self, edge: int) -> Ints:
        """Costs of an edge (u, v), options of u by options of v; a view."""
        first, stop = self.first_pair[edge : edge + 2]
        return self.pair_cost[first:stop].reshape(self.num_options[self.ends[edge, 0]], -1)

    def possible(self) -> Bools:
        """(options,): which options are possible by themselves."""
        return self.cost < IMPOSSIBLE
