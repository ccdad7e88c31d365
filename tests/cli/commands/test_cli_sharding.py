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
        (["--sharding", "contxt"], "'contxt' is not one of none, auto, data, tensor"),
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
        ("slice: 1", "job.yaml:3: sharding: must be none with slice"),
        ("schedules: [interleaved]", "job.yaml:3: sharding: must be none with the interleaved schedule"),
    ],
)
def test_a_job_file_is_refused_at_its_line(plan, tiny, tmp_path, line, complaint):
    job = tmp_path / "job.yaml"
    job.write_text(f"schema: 1\nglobal_batch: 32\nsharding: [fsdp]\nmicro_batches: [4]\n{line}\n")
    done = plan("solve", *tiny, "--job", job)
    assert done.exit_code == 3
    assert complaint in done.stderr


SMALL = ("--model", "llama-mini", "--cluster", "h100-8", "--global-batch", "64", "--micro-batch", "64")
FIXED = ("--schedule", "1f1b", "--pipelines", "1", "--replicas", "1", "--tensor-parallel", "4", "--quiet")


@pytest.fixture(scope="module")
def sharded(plan, tmp_path_factory):
    """A plan file of four devices that divide every operator in its own way."""
    path = tmp_path_factory.mktemp("sharded") / "plan.json"
    done = plan("solve", *SMALL, *FIXED, "--sharding", "auto", "--solver", "greedy", "-o", path)
    assert done.exit_code == 0, done.output
    assert "strategy" in done.stdout
    assert json.loads(path.read_text())["plan"]["pipelines"][0]["stages"][0]["sharding"] is not None
    return path


def test_a_sharded_plan_checks(plan, sharded):
    done = plan("check", sharded)
    assert done.exit_code == 0, done.output


def test_answers_name_strategies_and_parts_of_the_memory(plan_json, sharded):
    (stage, *_) = plan_json("simulate", sharded)["stages"]
    assert " 4" in stage["strategy"] or " 2" in stage["strategy"]
    assert sum(stage["memory"].values()) == pytest.approx(stage["memory_bytes"])


def changed(sharded, tmp_path, change):
    tree = json.loads(sharded.read_text())
    change(tree["plan"]["pipelines"][0]["stages"][0]["sharding"])
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(tree, indent=2))
    return path


def widest(sharding):
    """The operators of the first feed-forward layer."""
    return next(alike["operators"] for alike in sharding["layers"] if "down" in alike["operators"])


@pytest.mark.parametrize(
    ("change", "place", "complaint"),
    [
        (
            lambda sharding: widest(sharding).update(down=["heads"] * len(sharding["mesh"])),
            ".operators.down",
            "operator 'down' has no dimension 'heads' to be divided along",
        ),
        (lambda sharding: sharding.update(mesh=[3]), "sharding.mesh", "must be a grid of tensor_parallel = 4 devices"),
        (lambda sharding: sharding["layers"].pop(0), "sharding.layers", "must state every layer of the stage"),
    ],
)
def test_a_sharding_that_cannot_be_is_refused_with_its_place(plan, sharded, tmp_path, change, place, complaint):
    done = plan("check", changed(sharded, tmp_path, change))
    assert done.exit_code == 3
    assert place in done.stderr
    assert complaint in done.stderr


def test_a_strategy_that_the_job_does_not_allow_is_a_difference(plan, sharded, tmp_path):
    tree = json.loads(sharded.read_text())
    tree["inputs"]["job"]["sharding"] = ["experts"]
    path = tmp_path / "experts.json"
    path.write_text(json.dumps(tree))
    done = plan("check", path)
    assert done.exit_code == 6
    assert "the job allows only experts" in done.output


def test_where_sharding_has_little_effect_a_note_says_so(plan, tiny, tiny_folder, tmp_path):
    done = plan("solve", *tiny, "--sharding", "auto", "--dry-run")
    assert "note: job: sharding has no effect: the model has skip edges" in done.stderr
    chain = tmp_path / "chain.yaml"
    chain.write_text((tiny_folder / "profile.yaml").read_text().partition("skip_edges:")[0])
    done = plan("solve", "--model", chain, *tiny[2:], "--sharding", "auto", "--dry-run")
    assert "note: job: sharding divides samples only: no layer of the profile states its operators" in done.stderr
    done = plan("solve", *SMALL, "--tensor-parallel", "1", "--sharding", "auto", "--dry-run")
    assert "note: job: sharding has no effect: tensor_parallel allows a single device" in done.stderr
