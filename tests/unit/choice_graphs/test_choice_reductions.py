"""Every reduction by itself, on the smallest graph that shows what it takes out and what it keeps."""

import numpy as np
import pytest

from stagecut.planner.choice_graphs.reductions.additive_edges import drop_additive_edges
from stagecut.planner.choice_graphs.reductions.components import split
from stagecut.planner.choice_graphs.reductions.dominated_options import drop_dominated_options
from stagecut.planner.choice_graphs.reductions.impossible_options import drop_impossible_options
from stagecut.planner.choice_graphs.reductions.low_degree import eliminate_node
from stagecut.planner.choice_graphs.reductions.oversized_options import drop_oversized_options
from stagecut.planner.choice_graphs.reductions.reduce import reduce
from stagecut.planner.choice_graphs.reductions.workbench import Workbench
from tests.choice_graphs import NO, choice_graph, legal_cost

ALWAYS = (0, 9)


def free(*costs):
    """A node that uses nothing."""
    return (list(costs), [0] * len(costs), ALWAYS)


def test_an_option_that_a_neighbour_never_allows_goes():
    bench = Workbench(choice_graph([free(0, 0), free(0, 0)], {(0, 1): [[NO, 1], [NO, NO]]}))
    assert drop_impossible_options(bench, 0)
    assert bench.number[0].tolist() == [0]
    assert drop_impossible_options(bench, 1)
    assert bench.number[1].tolist() == [1]
    assert bench.tables[0][1].tolist() == bench.tables[1][0].tolist() == [[1]]


def test_a_node_without_options_means_that_no_choice_is_legal():
    assert reduce(choice_graph([free(0, 0), free(NO, 0)], {(0, 1): [[0, NO], [0, NO]]})) is None


def test_an_option_that_exceeds_the_room_of_a_moment_goes():
    """The other node uses 3 at least, so 5 of the limit of 8 are left."""
    bench = Workbench(choice_graph([([0, 0], [5, 6], ALWAYS), ([0, 0], [3, 7], ALWAYS)], limit=8))
    assert drop_oversized_options(bench)
    assert (bench.number[0].tolist(), bench.number[1].tolist()) == ([0], [0])


@pytest.mark.parametrize(("usage", "kept"), [([5, 5], [0]), ([6, 5], [0, 1])])
def test_a_dominated_option_goes_unless_it_uses_less(usage, kept):
    """Option 1 costs 2 more by itself and 1 less with the neighbour's worst option for it."""
    nodes = [([0, 2], usage, ALWAYS), ([0, 0], [0, 9], ALWAYS)]
    bench = Workbench(choice_graph(nodes, {(0, 1): [[3, 3], [3, 2]]}, limit=10))
    drop_dominated_options(bench, 0)
    assert bench.number[0].tolist() == kept


def test_an_option_that_allows_more_than_its_rival_stays():
    bench = Workbench(choice_graph([free(0, 9), free(0, 0)], {(0, 1): [[0, NO], [0, 0]]}))
    assert not drop_dominated_options(bench, 0)


def test_of_equal_options_the_first_stays():
    bench = Workbench(choice_graph([free(4, 4, 4)]))
    assert drop_dominated_options(bench, 0)
    assert bench.number[0].tolist() == [0]


def test_an_additive_edge_becomes_costs_of_its_ends():
    """Rows 1 + (0, 2) and 4 + (0, 2)."""
    bench = Workbench(choice_graph([free(10, 20), free(30, 40)], {(0, 1): [[1, 3], [4, 6]]}))
    assert drop_additive_edges(bench, 0)
    assert (bench.cost[0].tolist(), bench.cost[1].tolist()) == ([11, 24], [30, 42])
    assert bench.tables == [{}, {}]


def test_an_edge_that_is_not_additive_stays():
    bench = Workbench(choice_graph([free(0, 0), free(0, 0)], {(0, 1): [[1, 3], [4, 7]]}))
    assert not drop_additive_edges(bench, 0)


def test_a_node_between_two_others_becomes_an_edge():
    """Least over its options: (p, q) -> min(1 + w0[p, 0] + w2[0, q], 2 + w0[p, 1] + w2[1, q])."""
    edges = {(0, 1): [[0, 5], [5, 0]], (1, 2): [[0, 3], [9, 1]]}
    graph = choice_graph([free(0, 0), free(1, 2), free(0, 0)], edges)
    bench = Workbench(graph)
    assert eliminate_node(bench, 1)
    assert bench.tables[0][2].tolist() == [[1, 4], [6, 3]]
    left, nodes = bench.assemble()
    assert (left.num_nodes, nodes) == (2, [0, 2])
    for p in (0, 1):
        for q in (0, 1):
            assert legal_cost(graph, bench.put_back(nodes, np.array([p, q]))) == bench.tables[0][2][p, q]


def test_a_node_whose_usage_matters_is_not_eliminated():
    bench = Workbench(choice_graph([([0, 1], [9, 0], ALWAYS), ([0, 1], [9, 0], ALWAYS)], limit=10))
    assert not eliminate_node(bench, 0)


def test_the_usage_of_an_eliminated_node_still_counts():
    """Node 0 uses 4 with both options; the others have 6 left, so one of them pays 1."""
    nodes = [([0, 7], [4, 4], ALWAYS), ([0, 1], [4, 0], ALWAYS), ([0, 1], [4, 0], ALWAYS)]
    reduced = reduce(choice_graph(nodes, limit=10))
    assert reduced.graph.usage[reduced.graph.options(0)].tolist() == [4]
    assert reduced.graph.num_nodes == 3


def test_a_tree_without_limit_is_reduced_to_its_optimum():
    """A star: with option 0 in the middle 1 + 1 + 1, with option 1 the leaves are free but the middle costs 4."""
    leaf = [[1, 2], [3, 0]]
    graph = choice_graph([free(0, 4), *[free(0, 0)] * 3], {(0, v): leaf for v in (1, 2, 3)})
    reduced = reduce(graph)
    assert (reduced.graph.num_nodes, reduced.constant) == (0, 3)
    assert legal_cost(graph, reduced.put_back(np.zeros(0, dtype=np.int64))) == 3


def test_equal_parts_have_equal_keys():
    """Two pairs of nodes, one alive before the other; in each, both cannot use 6."""
    pair = [([0, 1], [6, 0]), ([0, 2], [6, 0])]
    nodes = [(*node, when) for when in ((0, 2), (3, 5)) for node in pair]
    parts = split(choice_graph(nodes, limit=10))
    assert [part.nodes.tolist() for part in parts] == [[0, 1], [2, 3]]
    assert parts[0].key == parts[1].key


def test_what_others_use_meanwhile_makes_parts_unlike():
    pair = [([0, 1], [6, 0]), ([0, 2], [6, 0])]
    nodes = [(*node, when) for when in ((0, 2), (3, 5)) for node in pair]
    parts = split(choice_graph([*nodes, ([0], [2], (3, 5))], limit=10))
    assert len({part.key for part in parts}) == 3


def test_graphs_too_dear_to_tell_sums_from_the_impossible_stay_as_they_are():
    graph = choice_graph([free(6 * 10**16), free(6 * 10**16)], {(0, 1): [[0]]})
    assert reduce(graph).graph.num_edges == 1
