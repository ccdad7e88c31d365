"""`plan shard`: answers, checks, faults and exit codes."""

import json

import pytest

from tests.choice_graphs import NO, choice_graph, write_graph

ALWAYS = (0, 5)


@pytest.fixture
def graph_file(tmp_path):
    """Both want their first option, at cost 0; together these use 12 of 10, so node 1 changes for 3."""
    nodes = [([0, 5], [6, 0], ALWAYS), ([0, 3], [6, 1], ALWAYS)]
    return write_graph(tmp_path / "graph.json", choice_graph(nodes, {(0, 1): [[0, 0], [0, 9]]}, limit=10))


def test_the_answer_is_printed_and_written(plan, plan_json, graph_file, tmp_path):
    answer = plan_json("shard", "--choice-graph", graph_file)
    assert answer.pop("seconds") > 0
    assert answer == {
        "schema": answer["schema"],
        "status": "optimal",
        "objective": 3,
        "bound": 3,
        "gap": 0.0,
        "peak_usage": 7,
        "reason": None,
        "choices": [0, 1],
    }
    done = plan("shard", "--choice-graph", graph_file, "-o", tmp_path / "answer.json")
    assert done.exit_code == 0
    assert done.stdout == "cost 3, bound 3, proven optimal\n"
    assert "best 3  bound 3  gap 0.00 %" in done.stderr
    assert json.loads((tmp_path / "answer.json").read_text())["choices"] == [0, 1]


def test_an_answer_is_checked(plan, plan_json, graph_file, tmp_path):
    path = tmp_path / "answer.json"
    plan("shard", "--choice-graph", graph_file, "-o", path)
    done = plan("shard", "--choice-graph", graph_file, "--check", path)
    assert (done.exit_code, done.stdout) == (0, f"{path}: legal, cost 3, largest usage 7 at moment 0\n")
    checked = plan_json("shard", "--choice-graph", graph_file, "--check", path)
    assert (checked["agrees"], checked["objective"], checked["differences"]) == (True, 3, [])


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([0, 0], "moment 0: usage 12 is 2 over the limit of 10"),
        ([0], "choices: 1 for 2 nodes"),
        ({"choices": [0, 1], "objective": 2}, "objective: the file says 2, but the choices cost 3"),
        ({"choices": [0, 1], "bound": 4}, "bound: the file says 4, but the choices cost 3, which is less"),
    ],
)
def test_an_answer_that_does_not_hold_is_told(plan, plan_json, graph_file, tmp_path, answer, told):
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(answer))
    done = plan("shard", "--choice-graph", graph_file, "--check", path)
    assert (done.exit_code, done.stdout) == (6, f"{path}: {told}\n")
    assert plan_json("shard", "--choice-graph", graph_file, "--check", path, exit_code=6)["differences"] == [told]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("{", "not JSON"),
        ('{"choices": 3}', "choices: a list of whole numbers is needed"),
        ("[0, true]", "choices[1]: got true, a whole number is needed"),
        ('{"choices": [0, 1], "bound": 1.5}', "bound: got 1.5, a whole number is needed"),
    ],
)
def test_a_file_that_is_no_answer_is_bad_input(plan, graph_file, tmp_path, answer, told):
    path = tmp_path / "answer.json"
    path.write_text(answer)
    done = plan("shard", "--choice-graph", graph_file, "--check", path)
    assert done.exit_code == 3
    assert told in done.stderr


@pytest.mark.parametrize(
    ("nodes", "edges", "told"),
    [
        # 6 and 5 at the least, at moment 1
        (
            [([0, 0], [6, 7], (0, 5)), ([0], [5], (1, 5))],
            {},
            "moment 1: even the least usages add up to 11, 1 over the limit of 10",
        ),
        # the pairs allow (6, 6) and (7, 4) only
        (
            [([0, 0], [6, 7], (2, 5)), ([0, 0], [6, 4], (2, 5))],
            {(0, 1): [[0, NO], [NO, 0]]},
            "moment 2: even the choice that exceeds the limit least uses 11, 1 over the limit of 10",
        ),
        (
            [([0, 0], [0, 0], (0, 5)), ([0, 0], [0, 0], (0, 5))],
            {(0, 1): [[NO, NO], [NO, NO]]},
            "every choice contains an impossible option or pair, whatever the usage limit",
        ),
    ],
)
def test_where_no_choice_is_legal_it_says_why(plan, plan_json, tmp_path, nodes, edges, told):
    path = write_graph(tmp_path / "graph.json", choice_graph(nodes, edges, limit=10))
    output = tmp_path / "answer.json"
    done = plan("shard", "--choice-graph", path, "-o", output)
    assert (done.exit_code, done.stdout) == (4, f"infeasible: {told}\n")
    assert not output.exists()
    answer = plan_json("shard", "--choice-graph", path, exit_code=4)
    assert (answer["status"], answer["reason"], answer["bound"]) == ("infeasible", told, None)


def test_a_faulty_graph_is_bad_input_and_nothing_is_written(plan, tmp_path):
    path = tmp_path / "graph.json"
    path.write_text('{"problem": {"nodes": {"costs": [[1, true]]}}}')
    done = plan("shard", "--choice-graph", path, "-o", tmp_path / "answer.json")
    assert done.exit_code == 3
    assert done.stdout == ""
    assert f"Error: {path}:1: nodes.costs[0][1]: got true" in done.stderr
    assert list(tmp_path.iterdir()) == [path]


def test_an_output_that_exists_is_kept(plan, graph_file, tmp_path):
    path = tmp_path / "answer.json"
    path.write_text("mine")
    assert plan("shard", "--choice-graph", graph_file, "-o", path).exit_code == 3
    assert path.read_text() == "mine"


def test_a_search_takes_its_limits_from_the_command_line(plan_json, graph_file):
    limits = ("--time-limit", "none", "--gap", "0", "--threads", 1, "--seed", 7, "--memory-limit", "8GiB")
    assert plan_json("shard", "--choice-graph", graph_file, *limits)["objective"] == 3
