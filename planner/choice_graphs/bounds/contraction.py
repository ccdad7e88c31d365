"""Nodes whose choice follows from that of a neighbour become one node with it."""

from collections import deque

import numpy as np

from stagecut.planner.choice_graphs.bounds.pieces import Table
from stagecut.planner.core.arrays import Bools, Floats, Ints


class Contraction:
    """Groups of nodes that choose together, and tables between groups.

    If every option p of u goes with a single option m(p) of v, every possible choice has x_v = m(x_u): v is taken
    into u, whose state p stands for both, with the cost of the pair (p, m(p)); row p of the table of u and another
    neighbour w gains row m(p) of that of v and w. Nothing but the number of nodes changes.
    Sharded operators mostly pass their sharding on: of contest graphs, 1 % of the nodes is left.
    """

    def __init__(self, tables: list[dict[int, Table]], nodes: list[int], num_options: Ints) -> None:
        self.tables = tables
        self.cost: dict[int, Floats] = {v: np.zeros(num_options[v]) for v in nodes}
        """By group, what its inner edges cost in each state."""
        self.members: dict[int, list[tuple[int, Ints]]] = {v: [(v, np.arange(num_options[v]))] for v in nodes}
        """By group, its nodes, and which option each has in each state."""
        self._untried = deque((u, v) for u in nodes for v in tables[u])
        self._is_untried = set(self._untried)

    @property
    def has_choice(self) -> bool:
        """Whether every group has a state left; if not, no choice is possible."""
        return all(len(cost) > 0 for cost in self.cost.values())

    def run(self) -> None:
        """Contract as long as a choice follows from another."""
        while self._untried:
            u, v = self._untried.popleft()
            self._is_untried.discard((u, v))
            if v in self.tables[u] and (follows := _follows(self.tables[u][v])) is not None:
                self._take(u, v, follows)

    def _take(self, u: int, v: int, option: Ints) -> None:
        """Take v into u, in whose states it has the given options."""
        self.cost[u] = self.cost[u] + self.cost.pop(v)[option] + self.tables[u][v][np.arange(len(option)), option]
        self.members[u] += [(node, of_state[option]) for node, of_state in self.members.pop(v)]
        del self.tables[u][v], self.tables[v][u]
        changed = deque[tuple[int, int]]()
        for w, table in self.tables[v].items():
            del self.tables[w][v]
            rows = table[option]
            if w in self.tables[u]:
                rows = rows + self.tables[u][w]
            self._set(u, w, rows)
            changed.extend(((u, w), (w, u)))
        self.tables[v] = {}
        self._restrict(changed)

    def _set(self, u: int, v: int, table: Table) -> None:
        self.tables[u][v], self.tables[v][u] = table, table.T
        for arc in ((u, v), (v, u)):
            if arc not in self._is_untried:
                self._is_untried.add(arc)
                self._untried.append(arc)

    def _restrict(self, waiting: deque[tuple[int, int]]) -> None:
        """Drop states of the first node of an edge without a partner; sums and parts of tables can leave some."""
        while waiting:
            u, v = waiting.popleft()
            kept: Bools = np.asarray(np.isfinite(self.tables[u][v]).any(axis=1))
            if not kept.all():
                self._keep(u, kept)
                waiting.extend((w, u) for w in self.tables[u])

    def _keep(self, u: int, kept: Bools) -> None:
        self.cost[u] = self.cost[u][kept]
        self.members[u] = [(node, option[kept]) for node, option in self.members[u]]
        for v in list(self.tables[u]):
            self._set(u, v, self.tables[u][v][kept])


def _follows(table: Table) -> Ints | None:
    """The only option of the second node that goes with each of the first; None if there is a choice."""
    possible = np.isfinite(table)
    return possible.argmax(axis=1) if possible.size and (possible.sum(axis=1) == 1).all() else None
