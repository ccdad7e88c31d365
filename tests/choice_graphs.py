"""Small choice graphs: written out by hand, and random ones."""

import json

import numpy as np
from hypothesis import strategies as st

from stagecut.planner.choice_graphs.building import build
from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.brute_force import try_all

NO = 10**18
"""A cost that means impossible."""


def choice_graph(nodes, edges=None, *, limit=10**6):
    """A graph of nodes (costs, usages, (start, stop)) and a table of costs for every edge (u, v)."""
    costs, usages, intervals = (list(column) for column in zip(*nodes, strict=True))
    tables = [np.array(table).ravel() for table in (edges or {}).values()]
    return build(
        name="small",
        first_option=offsets(costs),
        cost=np.concatenate(costs).astype(np.int64),
        usage=np.concatenate(usages).astype(np.int64),
        start=np.array([start for start, _ in intervals]),
        stop=np.array([stop for _, stop in intervals]),
        ends=np.array(list(edges or {}), dtype=np.int64).reshape(-1, 2),
        first_pair=offsets(tables),
        pair_cost=np.concatenate([*tables, np.zeros(0)]).astype(np.int64),
        usage_limit=limit,
    )


def offsets(rows):
    return np.cumsum([0, *(len(row) for row in rows)])


def contest_tree(graph):
    """The graph as the contest's JSON has it."""

    def rows(values, first):
        return [values[first[row] : first[row + 1]].tolist() for row in range(len(first) - 1)]

    return {
        "problem": {
            "name": graph.name,
            "nodes": {
                "intervals": np.stack((graph.start, graph.stop), axis=1).tolist(),
                "costs": rows(graph.cost, graph.first_option),
                "usages": rows(graph.usage, graph.first_option),
            },
            "edges": {"nodes": graph.ends.tolist(), "costs": rows(graph.pair_cost, graph.first_pair)},
            "usage_limit": graph.usage_limit,
        }
    }


def write_graph(path, graph):
    path.write_text(json.dumps(contest_tree(graph)))
    return path


def optimum(graph):
    """Cost of the cheapest legal choice by brute force; None if there is none."""
    best = try_all(graph)
    return None if best is None else legal_cost(graph, best)


def legal_cost(graph, choices):
    evaluation = evaluate(graph, choices)
    assert evaluation.faults == ()
    return evaluation.cost


@st.composite
def small_graphs(draw, most_nodes=6, limited=True):
    """Graphs of a few nodes with loops, parallel edges, impossible options and pairs, tight and slack limits."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_nodes = int(rng.integers(1, most_nodes + 1))
    num_options = rng.integers(1, 5, num_nodes)
    first_option = np.concatenate(([0], np.cumsum(num_options)))
    ends = rng.integers(0, num_nodes, (int(rng.integers(0, 2 * num_nodes)), 2))
    first_pair = np.concatenate(([0], np.cumsum(num_options[ends[:, 0]] * num_options[ends[:, 1]])))
    most = int(rng.choice([2, 5, 30, 10**6, 10**12]))
    pair_cost = rng.integers(0, most, first_pair[-1])
    pair_cost[rng.random(len(pair_cost)) < rng.choice([0, 0.1, 0.4])] = NO
    cost = rng.integers(0, most, first_option[-1])
    cost[rng.random(len(cost)) < rng.choice([0, 0.05])] = NO
    usage = rng.integers(0, int(rng.choice([2, 6, 10**9])), len(cost))
    start = rng.integers(0, 5, num_nodes)
    share = rng.choice([0.2, 0.3, 0.5]) if limited else 1
    return build(
        name="random",
        first_option=first_option,
        cost=cost,
        usage=usage,
        start=start,
        stop=start + rng.integers(0, 4, num_nodes),
        ends=ends,
        first_pair=first_pair,
        pair_cost=pair_cost,
        usage_limit=int(share * usage.max() * num_nodes),
    )
