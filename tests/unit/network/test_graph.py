"""Shortest paths through random layered graphs against the enumeration of all paths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecut.planner.network.graph import LayeredGraph
from tests.network_paths import paths_between

COSTS = st.sampled_from((0.0, 1.0, 2.0, 3.5, 7.0))


@st.composite
def layered_graphs(draw):
    """Up to five levels between source and sink; arcs may skip levels, and be parallel."""
    widths = [1, *draw(st.lists(st.integers(1, 3), max_size=4)), 1]
    level = np.repeat(np.arange(len(widths)), widths)
    pairs = [(a, b) for a in range(len(level)) for b in range(len(level)) if level[a] < level[b]]
    arcs = draw(st.lists(st.sampled_from(pairs), max_size=14))
    tail, head = (np.array([pair[end] for pair in arcs], dtype=np.int64) for end in (0, 1))
    cost = np.array([draw(COSTS) for _ in arcs])
    return LayeredGraph(tail=tail, head=head, level=level), cost


def least(graph, cost, source, sink, through=None):
    lengths = [
        cost[path].sum()
        for path in paths_between(graph.tail, graph.head, source, sink)
        if through is None or through in path
    ]
    return min(lengths, default=np.inf)


@given(layered_graphs())
def test_labels_are_lengths_of_shortest_paths(drawn):
    graph, cost = drawn
    nodes, sink = range(graph.num_nodes), graph.num_nodes - 1
    assert graph.from_source(cost).tolist() == [least(graph, cost, 0, node) for node in nodes]
    assert graph.to_sink(cost).tolist() == [least(graph, cost, node, sink) for node in nodes]


@given(layered_graphs())
def test_through_is_the_shortest_path_over_each_arc(drawn):
    graph, cost = drawn
    sink = graph.num_nodes - 1
    assert graph.through(cost).tolist() == [least(graph, cost, 0, sink, arc) for arc in range(len(cost))]


@given(layered_graphs())
def test_shortest_path_leads_from_source_to_sink(drawn):
    graph, cost = drawn
    length = least(graph, cost, 0, graph.num_nodes - 1)
    path = graph.shortest_path(cost)
    if np.isinf(length):
        assert len(path) == 0
    else:
        assert cost[path].sum() == length
        assert [0, *graph.head[path]] == [*graph.tail[path], graph.num_nodes - 1]


@given(layered_graphs(), st.integers(0, 2**32 - 1))
def test_chosen_arcs_keep_their_paths_in_a_smaller_graph(drawn, seed):
    """The nodes are renumbered."""
    graph, cost = drawn
    chosen = np.random.default_rng(seed).random(len(cost)) < 0.7
    smaller = graph.restricted(chosen)
    assert smaller.through(cost[chosen]).tolist() == graph.through(np.where(chosen, cost, np.inf))[chosen].tolist()
    assert smaller.num_nodes <= graph.num_nodes


@given(layered_graphs(), st.integers(0, 2**32 - 1))
def test_arcs_that_do_not_count_are_on_no_path(drawn, seed):
    """Nodes and numbers of arcs stay; arcs that lead nowhere, or that nothing leads to, are on no path either."""
    graph, cost = drawn
    chosen = np.random.default_rng(seed).random(len(cost)) < 0.7
    counting = graph.counting(graph.by_tail[chosen[graph.by_tail]])
    through = graph.through(np.where(chosen, cost, np.inf))
    assert counting.from_source(cost).tolist() == graph.from_source(np.where(chosen, cost, np.inf)).tolist()
    assert counting.shortest_path(cost).tolist() == graph.shortest_path(np.where(chosen, cost, np.inf)).tolist()
    assert graph.on_paths(chosen).tolist() == np.isfinite(through).tolist()


def test_costs_may_be_negative():
    """A Lagrangian price may be; no arc leads back, so there is no cycle to run through."""
    graph = LayeredGraph(tail=np.array([0, 0, 1]), head=np.array([1, 2, 2]), level=np.array([0, 1, 2]))
    cost = np.array([5.0, 1.0, -6.0])
    assert graph.shortest_path(cost).tolist() == [0, 2]
    assert graph.through(cost) == pytest.approx([-1.0, 1.0, -1.0])


def test_graph_without_arcs_has_no_path():
    none = np.empty(0, dtype=np.int64)
    graph = LayeredGraph(tail=none, head=none, level=np.array([0, 1]))
    assert graph.from_source(np.empty(0)).tolist() == [0.0, np.inf]
    assert len(graph.shortest_path(np.empty(0))) == 0


@given(layered_graphs())
def test_all_paths_are_listed(drawn):
    graph, _ = drawn
    listed = sorted(path.tolist() for path in graph.paths())
    assert listed == sorted(list(path) for path in paths_between(graph.tail, graph.head, 0, graph.num_nodes - 1))
