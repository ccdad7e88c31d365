"""`plan shard --model`: answers, wrong input, exit codes."""

import json

import pytest

SHARD = (
    "shard",
    "--model",
    "gpt-mini",
    "--cluster",
    "cpu-2",
    "--global-batch",
    "8",
    "--mesh",
    "2",
    "--precision",
    "fp32",
)


def test_schemes_and_layers_are_printed_and_written(plan, tmp_path):
    path = tmp_path / "answer.json"
    done = plan(*SHARD, "-o", path)
    assert done.exit_code == 0
    assert "data parallel" in done.stdout
    assert "proven optimal" in done.stdout
    assert f"wrote {path}" in done.stderr
    answer = json.loads(path.read_text())
    best = answer["schemes"][0]
    assert answer["status"] == "optimal"
    assert answer["bound_s"] <= best["iteration_s"] == min(each["iteration_s"] for each in answer["schemes"])
    parts = ("compute_s", "collectives_s", "sync_s", "update_s")
    assert best["iteration_s"] == pytest.approx(sum(best[part] for part in parts))
    assert len(answer["layers"]) == 14
    assert {len(own["splits"]) for layer in answer["layers"] for own in layer["operators"]} == {1}


def test_the_descent_and_the_experts_prove_nothing(plan_json):
    for solver in ("coordinate-descent", "experts"):
        answer = plan_json(*SHARD, "--solver", solver)
        assert (answer["status"], answer["bound_s"]) == ("feasible", None)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("--mesh", "3"), "mesh: sizes must be a grid of 2 devices"),
        (("--micro-batch", "3"), "a divisor of the global batch 8"),
        (("--server", "nothing"), "server"),
        (("--cluster", "hetpipe-16"), "name one with --server: "),
        (("--cluster", "mixed-server-8"), "islands"),
        (("--model", "nothing"), "nothing"),
    ],
)
def test_wrong_input_gets_one_message(plan, changed, told):
    done = plan(*SHARD, *changed)
    assert done.exit_code == 3
    assert told in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("shard",), "Missing option '--model', '--cluster', '--global-batch'; or give a '--choice-graph'."),
        (("shard", "--model", "gpt-mini", "--check", "pyproject.toml"), "'--check' needs a '--choice-graph'"),
        (("shard", "--choice-graph", "pyproject.toml", "--mesh", "2"), "'--mesh' say how to divide a model"),
        ((*SHARD, "--mesh", "2,2"), "is not a mesh; write 8 or 2x4"),
    ],
)
def test_wrong_usage_is_told(plan, arguments, told):
    done = plan(*arguments)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.split())


def test_too_little_memory_is_told_with_numbers(plan):
    done = plan("shard", "--model", "gpt3-175b", "--cluster", "cpu-2", "--global-batch", "1", "--solver", "exact")
    assert done.exit_code == 4
    assert "infeasible: mesh 2: every sharding needs at least" in done.stdout
