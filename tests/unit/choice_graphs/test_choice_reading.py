"""The contest's JSON: read whole from plain and gzipped text, and every fault told with its place."""

import gzip
import json
import random
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from stagecut.planner.choice_graphs.reading import read_choice_graph
from stagecut.planner.choice_graphs.text import Text
from stagecut.planner.choice_graphs.writing import write_choice_graph
from stagecut.planner.core.messages.errors import BadInputError
from tests.choice_graphs import NO, choice_graph, contest_tree

GRAPH = choice_graph(
    [([1, 2], [3, 4], (0, 5)), ([5, 0, NO], [1, 1, 1], (2, 7)), ([0], [9], (1, 1))],
    {(0, 1): [[1, 2, 3], [NO, 0, 0]], (1, 2): [[4], [5], [6]]},
    limit=11,
)


def tree():
    return contest_tree(GRAPH)


def written(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def fault(path, content):
    with pytest.raises(BadInputError) as caught:
        read_choice_graph(written(path / "graph.json", content))
    return str(caught.value).replace(str(path), "")


def changed(change):
    document = tree()
    change(document["problem"])
    return document


def assert_same(graph, other):
    for name in ("first_option", "cost", "usage", "start", "stop", "ends", "first_pair", "pair_cost"):
        assert np.array_equal(getattr(graph, name), getattr(other, name)), name
    assert (graph.name, graph.usage_limit) == (other.name, other.usage_limit)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_graph_is_read_as_it_was_written(tmp_path, indent):
    assert_same(read_choice_graph(written(tmp_path / "graph.json", json.dumps(tree(), indent=indent))), GRAPH)


def test_gzipped_text_is_known_by_its_first_bytes(tmp_path):
    path = tmp_path / "graph"
    path.write_bytes(gzip.compress(json.dumps(tree()).encode()))
    assert_same(read_choice_graph(path), GRAPH)


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 64])
def test_tables_may_be_cut_anywhere(tmp_path, piece_bytes):
    numbers = random.Random(piece_bytes)
    table = [[numbers.randrange(-(10**12), 10**12) for _ in range(numbers.randrange(4))] for _ in range(2000)]
    path = written(tmp_path / "table.json", json.dumps(table))
    with Text(path, piece_bytes=piece_bytes) as text:
        first, found = text.table("table")
        text.end()
    assert [found[a:b].tolist() for a, b in pairwise(first)] == table


def test_costs_of_any_size_mean_impossible(tmp_path):
    document = tree()
    document["problem"]["edges"]["costs"][0][3] = 10**40
    assert_same(read_choice_graph(written(tmp_path / "graph.json", document)), GRAPH)


def test_parallel_edges_add_up_and_loops_belong_to_their_node(tmp_path):
    """Edge (1, 0) is (0, 1) transposed: w[p, q] + w'[q, p]. Of a loop only equal options count."""
    document = tree()
    edges = document["problem"]["edges"]
    edges["nodes"] += [[1, 0], [0, 0]]
    edges["costs"] += [[10, 20, 30, 40, 50, 60], [100, 7, 7, 200]]
    graph = read_choice_graph(written(tmp_path / "graph.json", document))
    assert graph.ends.tolist() == [[0, 1], [1, 2]]
    assert graph.table(0).tolist() == [[11, 32, 53], [10**17, 40, 60]]
    assert graph.cost[graph.options(0)].tolist() == [101, 202]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda p: p["edges"]["nodes"].__setitem__(1, [1, 3]),
            "edges.nodes[1]: [1, 3] leads to node 3; nodes are 0 to",
        ),
        (lambda p: p["edges"]["nodes"].__setitem__(0, [0, -1]), "edges.nodes[0]: [0, -1] leads to node -1"),
        (lambda p: p["edges"]["nodes"].__setitem__(0, [0]), "edges.nodes[0]: not a list of two nodes"),
        (lambda p: p["edges"]["costs"][0].pop(), "edges.costs[0]: 5 costs for the 2 x 3 pairs of options of nodes 0"),
        (lambda p: p["edges"]["costs"].pop(), "edges.costs: 1 rows, but edges.nodes has 2"),
        (lambda p: p["nodes"]["usages"][1].pop(), "nodes.usages[1]: 2 usages for 3 options"),
        (lambda p: p["nodes"]["usages"].pop(), "nodes.usages: 2 rows, but nodes.costs has 3"),
        (lambda p: p["nodes"]["usages"][1].__setitem__(2, -4), "nodes.usages[1]: -4 is negative"),
        (lambda p: p["nodes"]["costs"][0].__setitem__(1, -1), "nodes.costs[0]: -1 is negative"),
        (lambda p: p["edges"]["costs"][1].__setitem__(1, -9), "edges.costs[1]: -9 is negative"),
        (lambda p: p["nodes"]["intervals"].__setitem__(1, [5, 3]), "nodes.intervals[1]: [5, 3) ends before it begins"),
        (lambda p: p["nodes"]["intervals"].__setitem__(2, [5]), "nodes.intervals[2]: not a list of two moments"),
        (lambda p: p["nodes"]["costs"][0].__setitem__(1, True), "nodes.costs[0][1]: got true in a list of lists of"),
        (lambda p: p["nodes"]["costs"][0].__setitem__(1, 2.5), "nodes.costs[0][1]: got 2.5 in a list of lists of"),
        (lambda p: p["nodes"]["costs"][0].__setitem__(1, float("nan")), "nodes.costs[0][1]: got NaN in a list of"),
        (lambda p: p["nodes"]["costs"][0].__setitem__(1, "3"), 'nodes.costs[0][1]: got "3" in a list of lists of'),
        (lambda p: p["nodes"]["costs"][0].__setitem__(0, None), "nodes.costs[0][0]: got null in a list of lists of"),
        (lambda p: p["nodes"]["costs"].__setitem__(1, 5), "nodes.costs[1][0]: got 5 in a list of lists of"),
        (lambda p: p["nodes"].__setitem__("costs", {}), "nodes.costs[0][0]: got { in a list of lists of"),
        (lambda p: p["nodes"].pop("usages"), "nodes: missing: usages"),
        (lambda p: p.pop("edges"), "problem: missing: edges"),
        (lambda p: p["nodes"].__setitem__("weights", []), "nodes.weights: unknown; nodes has costs, intervals, usages"),
        (lambda p: p.__setitem__("usage_limit", -1), "usage_limit: got -1, which is negative"),
        (lambda p: p.__setitem__("usage_limit", 1.5), "usage_limit: got 1.5, a whole number is needed"),
        (lambda p: p.__setitem__("name", 7), "name: got 7, a string is needed"),
        (lambda p: p["nodes"]["usages"][1].__setitem__(0, 2**62), "the largest usages are"),
        (lambda p: p["nodes"]["costs"].__setitem__(2, []), "nodes.usages[2]: 1 usages for 0 options"),
    ],
)
def test_a_fault_is_told_with_its_place(tmp_path, change, told):
    assert told in fault(tmp_path, changed(change))


def test_a_node_needs_an_option(tmp_path):
    def change(problem):
        problem["nodes"]["costs"][2] = problem["nodes"]["usages"][2] = []

    assert "nodes.costs[2]: no options; a node needs at least one" in fault(tmp_path, changed(change))


def test_faults_of_several_tables_are_told_at_once(tmp_path):
    def change(problem):
        problem["nodes"]["usages"][0][0] = -1
        problem["nodes"]["costs"][1][0] = problem["nodes"]["costs"][2][0] = -5

    told = fault(tmp_path, changed(change)).splitlines()
    assert told == [
        "/graph.json: nodes.costs[1]: -5 is negative (and 1 more)",
        "/graph.json: nodes.usages[0]: -1 is negative",
    ]


def test_a_key_given_twice_is_told(tmp_path):
    assert "usage_limit: twice" in fault(tmp_path, '{"problem": {"usage_limit": 1, "usage_limit": 2}}')


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ":1: the file ends here, in the middle of the document"),
        ("[]", ":1: got [, where '{' is needed"),
        ("{}", ":1: missing: problem"),
        ('{"problem": []}', ":1: problem: got [, where '{' is needed"),
        ('{"problem": {\n"nodes": {\n"costs": [[1, 2,\n 03]]}}}', ":4: nodes.costs[0][2]: got 03 in"),
        ('{"problem": {"nodes": {"costs": [[1, 2], [3', "nodes.costs[1][0]: the file ends here"),
        ('{"problem": {"nodes": {"costs": [[1, 2], ]', "nodes.costs[1][0]: got ] in"),
        ('{"problem": {"nodes": {"costs": [[1 2]]', "nodes.costs[0][1]: got 2 in"),
    ],
)
def test_broken_text_is_told_with_its_line(tmp_path, text, told):
    assert told in fault(tmp_path, text)


def test_text_behind_the_end_is_told(tmp_path):
    assert ":2: got { behind the end" in fault(tmp_path, json.dumps(tree()) + "\n{}")


def test_a_gzipped_file_that_is_cut_short_is_told(tmp_path):
    content = gzip.compress(json.dumps(tree()).encode())
    path = tmp_path / "graph.json.gz"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInputError, match=r"cut short or damaged"):
        read_choice_graph(path)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(BadInputError, match=r"none\.json: no such file"):
        read_choice_graph(tmp_path / "none.json")


def test_parallel_edges_that_add_up_to_the_impossible_are_refused():
    nodes = [([0], [0], (0, 1)), ([0], [0], (0, 1))]
    with pytest.raises(BadInputError, match="parallel edges add up to 1e"):
        choice_graph_of_parallel(nodes)


def choice_graph_of_parallel(nodes):
    return choice_graph(nodes, {(0, 1): [[6 * 10**16]], (1, 0): [[6 * 10**16]]})


@pytest.mark.parametrize("name", ["graph.json", "graph.json.gz"])
def test_a_written_graph_is_read_as_the_same(tmp_path, name):
    """Every array, the name with its quotes, and the limit; the same graph gives the same bytes."""
    graph = replace(GRAPH, name='a "b"')
    write_choice_graph(tmp_path / name, graph)
    found = read_choice_graph(tmp_path / name)
    for field in fields(graph):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(graph, field.name), err_msg=field.name)
    write_choice_graph(tmp_path / f"again-{name}", found)
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()
