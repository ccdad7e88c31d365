"""Small random choice graphs, and all their choices."""

import itertools
from collections.abc import Iterator

import numpy as np

from stagecut.planner.choice_graphs.building import build
from stagecut.planner.choice_graphs.contraction.contract import ContractedGraph, contract
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph


def random_choice_graph(
    random: np.random.Generator, *, num_nodes: int = 6, most_options: int = 3, density: float = 0.4
) -> ChoiceGraph:
    """A graph with some impossible options and pairs, one-to-one edges, sums as tables, often a limit that binds."""
    num_options = random.integers(1, most_options + 1, num_nodes)
    first_option = np.concatenate([[0], np.cumsum(num_options)])
    usage = random.integers(0, 10, first_option[-1])
    cost = random.integers(0, 20, first_option[-1])
    cost[random.random(len(cost)) < 0.05] = IMPOSSIBLE
    start = random.integers(0, 8, num_nodes)
    ends = np.array(
        [pair for pair in itertools.permutations(range(num_nodes), 2) if random.random() < density / 2],
        dtype=np.int64,
    ).reshape(-1, 2)
    tables = [_table(random, int(num_options[u]), int(num_options[v])) for u, v in ends]
    return build(
        name="random",
        first_option=first_option,
        cost=cost,
        usage=usage,
        start=start,
        stop=start + random.integers(0, 6, num_nodes),
        ends=ends,
        first_pair=np.concatenate([[0], np.cumsum([table.size for table in tables], dtype=np.int64)]),
        pair_cost=np.concatenate([np.zeros(0, dtype=np.int64), *(table.ravel() for table in tables)]),
        usage_limit=int(random.integers(5, 40)),
    )


def all_choices(graph: ChoiceGraph) -> Iterator[np.ndarray]:
    """Every combination of options."""
    return map(np.array, itertools.product(*(range(k) for k in graph.num_options.tolist())))


def random_contracted(random: np.random.Generator) -> ContractedGraph:
    """The groups of the first random graph that has a possible choice."""
    while True:
        contracted = contract(random_choice_graph(random, num_nodes=8))
        if contracted is not None:
            return contracted


def _table(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    table = random.integers(0, 30, (rows, columns))
    kind = random.random()
    if kind < 0.3 and rows == columns:
        return np.where(np.eye(rows, dtype=bool)[random.permutation(rows)], table, IMPOSSIBLE)
    if kind < 0.5:
        return table[:, :1] + table[:1]
    return np.where(random.random(table.shape) < 0.15, IMPOSSIBLE, table)
