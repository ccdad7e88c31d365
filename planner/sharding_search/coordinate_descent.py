"""Coordinate descent with restarts, one node at a time and pairs of neighbours: the search of AutoDDL.

What the paper leaves open to us is in docs/papers/autoddl.md.
"""

from collections.abc import Callable

import numpy as np

from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.core.numerics.arrays import Ints

NUM_STARTS = 20
_TOTAL = 2**62


def coordinate_descent(
    graph: ChoiceGraph, *, seed: int = 0, num_starts: int = NUM_STARTS, stop: Callable[[], bool] = lambda: False
) -> Ints | None:
    """The best choice over all starts; None if none ends at a legal one.

    The first start has the least usage everywhere, the others are random. All nodes have to be alive at one moment.
    """
    random = np.random.default_rng(seed)
    descent = _Descent(graph)
    best: tuple[int, Ints] | None = None
    for number in range(num_starts):
        start = descent.least_usages() if number == 0 else random.integers(graph.num_options)
        choices = descent.run(start, random, stop=stop)
        found = evaluate(graph, choices)
        if not found.faults and (best is None or found.cost < best[0]):
            best = (found.cost, choices)
        if stop():
            break
    return None if best is None else best[1]


class _Descent:
    """Moves on one graph. What exceeds the limit is worse than any cost, what is impossible nearly as bad."""

    def __init__(self, graph: ChoiceGraph) -> None:
        self._graph = graph
        dear = _TOTAL // (graph.num_nodes + graph.num_edges + 1)
        self._costs = [np.minimum(graph.cost[graph.options(v)], dear) for v in range(graph.num_nodes)]
        self._usages = [graph.usage[graph.options(v)] for v in range(graph.num_nodes)]
        self._tables: list[dict[int, Ints]] = [{} for _ in range(graph.num_nodes)]
        for edge, (u, v) in enumerate(graph.ends.tolist()):
            table = np.minimum(graph.table(edge), dear)
            self._tables[u][v], self._tables[v][u] = table, table.T

    def least_usages(self) -> Ints:
        """The choice that uses least."""
        return np.array([np.argmin(usage) for usage in self._usages], dtype=np.int64)

    def run(self, start: Ints, random: np.random.Generator, *, stop: Callable[[], bool]) -> Ints:
        """Descend until neither one node nor two neighbours can choose better."""
        choices = start.copy()
        singles, pairs = [[v] for v in range(len(start))], self._graph.ends.tolist()
        changed = True
        while changed and not stop():
            changed = False
            for group in (singles, pairs):
                for index in random.permutation(len(group)):
                    changed |= self._move(group[index], choices)
        return choices

    def _move(self, nodes: list[int], choices: Ints) -> bool:
        """Let a node, or two neighbours, choose the best beside all others; whether that is better."""
        others_usage = self._usage(choices) - sum(int(self._usages[v][choices[v]]) for v in nodes)
        cost, usage = self._beside(nodes[0], nodes, choices), self._usages[nodes[0]]
        if len(nodes) == 2:
            u, v = nodes
            cost = cost[:, None] + self._beside(v, nodes, choices)[None, :] + self._tables[u][v]
            usage = usage[:, None] + self._usages[v][None, :]
        over = np.maximum(others_usage + usage - self._graph.usage_limit, 0)
        best = int(np.argmin(np.where(over == over.min(), cost, np.iinfo(np.int64).max)))
        now = tuple(choices[nodes])
        if (int(over.flat[best]), int(cost.flat[best])) >= (int(over[now]), int(cost[now])):
            return False
        choices[nodes] = np.unravel_index(best, cost.shape)
        return True

    def _beside(self, node: int, nodes: list[int], choices: Ints) -> Ints:
        """Costs of the options of a node with its neighbours other than `nodes`."""
        cost = self._costs[node].copy()
        for other, table in self._tables[node].items():
            if other not in nodes:
                cost += table[:, choices[other]]
        return cost

    def _usage(self, choices: Ints) -> int:
        return sum(int(usage[choice]) for usage, choice in zip(self._usages, choices.tolist(), strict=True))
