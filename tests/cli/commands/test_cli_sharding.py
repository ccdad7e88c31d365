"""Sharding inside stages on the command line."""

import json

import pytest

KINDS = ["data", "tensor", "sequence", "context", "experts", "zero1", "zero2", "fsdp"]


@pytest.mark.parametrize(
    ("choice", "held"),
    [("none", None), ("auto", KINDS), ("fsdp,context,fsdp", ["fsdp", "context"])],
)
def test_the_choice_is_kept_in_the_plan_file(plan, tiny, tmp_path, choice, held):
    path = tmp_path / "plan.json"
    done = plan("solve", *tiny, "--solver", "greedy", "--sharding", choice, "-o", path)
    assert done.exit_code == 0, done.output
    assert json.loads(path.read_text())["inputs"]["job"].get("sharding") == held


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--sharding", "contxt"], "'contxt' is not one of data, tensor"),
        (["--sharding", "auto", "--micro-batch", "unequal"], "job: sharding must be none with unequal micro-batches"),
        (["--sharding", "auto", "--solver", "alpa"], "solver 'alpa': does not divide operators"),
    ],
)
def test_sharding_is_refused_where_it_does_not_go(plan, tiny, options, complaint):
    done = plan("solve", *tiny, *options)
    assert done.exit_code in (2, 3)
    assert complaint in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("unequal: true", "job.yaml:3: sharding: must be none with unequal"),
        ("waves: {}", "job.yaml:3: sharding: must be none with waves"),
    ],
)
def test_a_job_file_is_refused_at_its_line(plan, tiny, tmp_path, line, complaint):
    job = tmp_path / "job.yaml"
    job.write_text(f"schema: 1\nglobal_batch: 32\nsharding: [fsdp]\nmicro_batches: [4]\n{line}\n")
    done = plan("solve", *tiny, "--job", job)
    assert done.exit_code == 3
    assert complaint in done.stderr
