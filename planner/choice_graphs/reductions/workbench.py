"""A choice graph taken apart, so that options, edges and nodes can leave it, and choices be mapped back."""

from collections.abc import Callable

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.choice_graphs.moments import find_moments
from stagecut.planner.core.numerics.arrays import Bools, Ints


class Workbench:
    """Tables of nodes and edges that reductions change in place.

    Every cost stays at least 0 and below 1e17 unless impossible: see
    :func:`~stagecut.planner.choice_graphs.reductions.reduce.reduce`.
    """

    def __init__(self, graph: ChoiceGraph) -> None:
        self.graph = graph
        nodes = range(graph.num_nodes)
        self.cost = [graph.cost[graph.options(v)].copy() for v in nodes]
        self.usage = [graph.usage[graph.options(v)] for v in nodes]
        self.number = [np.arange(len(self.cost[v])) for v in nodes]
        """By node, the options that remain, as numbered in the graph, ascending."""
        self.tables: list[dict[int, Ints]] = [{} for _ in nodes]
        """tables[u][v]: costs of an edge, options of u by options of v; tables[v][u] is the same transposed."""
        self.is_slack: list[bool] = []
        """By node: its choice can never make the usage exceed the limit; see :meth:`look_for_slack`."""
        self.gone = [False] * graph.num_nodes
        self.constant = 0
        """Cost that every choice pays, taken out of the tables."""
        self.stuck: int | None = None
        """A node that has no option left: no choice is legal."""
        self.touched: set[int] = set(nodes)
        """Nodes that changed since a reduction last looked at them."""
        self._put_back: list[Callable[[Ints], None]] = []
        for edge, (u, v) in enumerate(graph.ends.tolist()):
            self.set_table(u, v, graph.table(edge))
        self.look_for_slack()

    def is_stuck(self) -> bool:
        """Whether no choice is legal."""
        return self.stuck is not None

    def set_table(self, u: int, v: int, table: Ints) -> None:
        """Give an edge its costs, new or not."""
        self.tables[u][v], self.tables[v][u] = table, table.T
        self.touched.update((u, v))

    def drop_edge(self, u: int, v: int) -> None:
        """Take an edge out."""
        del self.tables[u][v], self.tables[v][u]
        self.touched.update((u, v))

    def keep_options(self, node: int, kept: Bools) -> None:
        """Take all other options of a node out."""
        if not kept.any():
            self.stuck = node
            return
        self.cost[node], self.usage[node] = self.cost[node][kept], self.usage[node][kept]
        self.number[node] = self.number[node][kept]
        for neighbour in list(self.tables[node]):
            self.set_table(node, neighbour, self.tables[node][neighbour][kept])
        self.touched.add(node)

    def drop_node(self, node: int, put_back: Callable[[Ints], None]) -> None:
        """Take a slack node and its edges out; `put_back` sets its choice, given those of its neighbours.

        A usage that all options share still counts: a node without edges and with one option stays in its place.
        """
        for neighbour in list(self.tables[node]):
            self.drop_edge(node, neighbour)
        self._put_back.append(put_back)
        usage = self.usage[node][:1]
        varies = bool((self.usage[node] != usage).any())
        self.gone[node] = varies or usage[0] == 0 or self.graph.start[node] == self.graph.stop[node]
        self.cost[node], self.usage[node], self.number[node] = np.zeros(1, dtype=np.int64), usage, np.zeros(1, np.int64)
        self.touched.discard(node)

    def look_for_slack(self) -> None:
        """Find the nodes that are alive at no moment that can overflow, or use the same with every option."""
        moments = find_moments(self.assemble()[0])
        slack = np.ones(len(self.cost), dtype=np.bool_)
        slack[[v for v in range(len(self.cost)) if not self.gone[v]]] = moments.begin == moments.end
        self.touched.update(np.flatnonzero(slack & ~np.array(self.is_slack or [False] * len(slack))).tolist())
        self.is_slack = slack.tolist()

    def assemble(self) -> tuple[ChoiceGraph, list[int]]:
        """What is left as a graph, and which of the nodes each of its nodes was."""
        nodes = [v for v in range(len(self.cost)) if not self.gone[v]]
        place = {node: at for at, node in enumerate(nodes)}
        edges = [(u, v) for u in nodes for v in sorted(self.tables[u]) if u < v]
        tables = [self.tables[u][v].ravel() for u, v in edges]
        graph = ChoiceGraph(
            name=self.graph.name,
            first_option=_first([self.cost[v] for v in nodes]),
            cost=_joined([self.cost[v] for v in nodes]),
            usage=_joined([self.usage[v] for v in nodes]),
            start=self.graph.start[nodes],
            stop=self.graph.stop[nodes],
            ends=np.array([(place[u], place[v]) for u, v in edges], dtype=np.int64).reshape(-1, 2),
            first_pair=_first(tables),
            pair_cost=_joined(tables),
            usage_limit=self.graph.usage_limit,
        )
        return graph, nodes

    def put_back(self, nodes: list[int], choices: Ints) -> Ints:
        """Choices on the whole graph from those on what was left."""
        whole = np.zeros(len(self.cost), dtype=np.int64)
        for node, choice in zip(nodes, choices.tolist(), strict=True):
            whole[node] = self.number[node][choice]
        for put_back in reversed(self._put_back):
            put_back(whole)
        return whole


def plus(first: Ints, second: Ints) -> Ints:
    """A sum of costs of at least 0 in which the impossible stays so."""
    total: Ints = np.minimum(first + second, IMPOSSIBLE)
    return total


def _first(rows: list[Ints]) -> Ints:
    return np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))


def _joined(rows: list[Ints]) -> Ints:
    return np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
