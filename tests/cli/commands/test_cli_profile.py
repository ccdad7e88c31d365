"""`plan profile` and `plan doctor --devices` from files to files."""

import json
from pathlib import Path

import pytest

from stagecut.planner.io.files.cluster import read_cluster

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
LAYERS = "tests.executor.tiny_layers:chain"
QUICK = ("--repetitions", "1", "--threads", "1", "--quiet")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def profile(plan_json, torch, tmp_path_factory):
    """The profile of six tiny layers measured by two processes, and the answer."""
    path = tmp_path_factory.mktemp("profile") / "tiny.json"
    options = ("--layers", LAYERS, "--micro-batch", "1,2", "--warmup", "0", "--processes", "2", "--device-type", "box")
    return path, plan_json("profile", "model", *options, *QUICK, "-o", path)


@pytest.fixture(scope="module")
def cluster(plan_json, torch, tmp_path_factory):
    """Two processes of this machine as a cluster, and the answer."""
    path = tmp_path_factory.mktemp("cluster") / "here.yaml"
    options = ("--largest", "4KiB", "--params", "1000", "--device-type", "box")
    return path, plan_json("profile", "links", *options, *QUICK, "-o", path)


def test_measured_files_make_a_problem_that_is_solved(plan_json, profile, cluster):
    files = ("--model", profile[0], "--cluster", cluster[0])
    answer = plan_json("solve", *files, "--global-batch", "4", "--micro-batch", "1,2", "--precision", "fp32")
    assert answer["status"] == "optimal"
    assert answer["objective_s"] > 0


def test_the_profile_shows_as_any_other(plan, profile):
    shown = plan("models", "show", profile[0])
    assert shown.exit_code == 0
    assert "6 layers" in shown.stdout


def test_the_answer_says_what_was_measured(profile):
    """Six layers of 8 x 8 + 8 parameters; two sizes."""
    _, answer = profile
    assert answer["model"] == "tiny-6"
    assert answer["device_type"] == "box"
    assert answer["processes"] == 2
    assert [layer["params"] for layer in answer["layers"]] == [72] * 6
    assert [[times["samples"] for times in layer["times"]] for layer in answer["layers"]] == [[1, 2]] * 6
    assert [stage["samples"] for stage in answer["stage"]] == [1, 2]
    assert answer["update"]["params"] == 6 * 72
    assert isinstance(answer["contaminated"], bool)


def test_answers_are_on_the_page(profile, cluster, plan_json):
    section = PAGE.partition("\n## plan profile\n")[2].partition("\n## ")[0]
    for answer in (profile[1], cluster[1]):
        assert {key for key in keys(answer) if f"`{key}`" not in section} <= {"fp32", "bf16", "fp16"}
    doctor = PAGE.partition("\n## plan doctor\n")[2]
    assert {key for key in keys(plan_json("doctor", "--devices")["devices"]) if f"`{key}`" not in doctor} == set()


def test_links_of_every_rank_are_in_the_answer(cluster):
    """The first rank asks, the second one answers; both have an all-reduce of both."""
    first, second = cluster[1]["ranks"]
    for kind in ("one_way", "streaming"):
        (curve,) = first[kind]
        assert curve["to_rank"] == 1
        assert [num_bytes for num_bytes, _ in curve["table"]] == [1024, 4096]
        assert min(seconds for _, seconds in curve["table"]) > 0
        assert second[kind] == []
    assert [[curve["num_ranks"] for curve in rank["all_reduce"]] for rank in (first, second)] == [[2], [2]]


def test_the_cluster_is_one_host_of_two_devices_with_tables(cluster):
    here = read_cluster(cluster[0])
    assert [device.device_type for device in here.devices()] == ["box", "box"]
    assert here.servers[0].islands[0].fabric.table
    assert here.servers[0].islands[0].all_reduce_among(2) is not None
    assert set(dict(here.device_types[0].peak_flops_per_s)) == {"fp32", "bf16"}


def test_people_get_tables_and_are_told_of_the_file(plan, torch, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    options = ("--layers", LAYERS, "--micro-batch", "1", "--repetitions", "1", "--warmup", "0")
    done = plan("profile", "model", *options, "-o", "p.json")
    assert done.exit_code == 0, done.output
    assert "feed-forward-2" in done.stdout
    assert "wrote p.json" in done.stderr
    assert "micro-batches of 1 ..." in capfd.readouterr().err  # of the measuring process


def test_times_are_added_to_a_profile(plan_json, plan, profile, tmp_path):
    output = tmp_path / "both.json"
    options = ("--layers", LAYERS, "--micro-batch", "2", "--warmup", "0", "--layer-range", "1-2")
    plan_json("profile", "model", *options, *QUICK, "--add-to", profile[0], "-o", output)
    layers = json.loads(output.read_text())["layers"]
    assert [sorted(layer["forward_s"]) for layer in layers] == [
        ["box"],
        *[["box", "cpu-1-thread"]] * 2,
        *[["box"]] * 3,
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("model", "no-such-model"), "unknown model 'no-such-model'"),
        (("model", "--layers", "nothing"), "must be package.module:function"),
        (("model", "--layers", LAYERS, "--layer-range", "2-9"), "has layers 0 to 5, got 9"),
        (("model", "--layers", LAYERS, "--device", "cuda", "--processes", "1000"), "1000 processes need one GPU each"),
        (("links", "--largest", "1kB"), "--largest: must be above 1024 B"),
        (("links", "--device", "cuda", "--processes", "1000"), "1000 processes need one GPU each"),
    ],
)
def test_what_cannot_be_measured_is_one_message_and_nothing_is_written(plan, torch, tmp_path, arguments, complaint):
    output = tmp_path / "out.json"
    done = plan("profile", *arguments, "-o", output)
    assert done.exit_code == 3
    assert complaint in done.stderr
    assert done.stderr.count("Error:") == 1
    assert not output.exists()


@pytest.mark.parametrize("what", [("model", "gpt-mini"), ("links",)])
def test_an_output_that_exists_is_left_alone_and_said_before_anything_is_measured(plan, tmp_path, what):
    output = tmp_path / "out.json"
    output.write_text("mine")
    done = plan("profile", *what, "-o", output)
    assert done.exit_code == 3
    assert "use --force to overwrite it" in done.stderr
    assert output.read_text() == "mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ("model", "-o", "x.json"),
        ("model", "gpt-mini"),
        ("model", "gpt-mini", "--layers", LAYERS, "-o", "x.json"),
        ("model", "gpt-mini", "--layer-range", "4-2", "-o", "x.json"),
        ("model", "gpt-mini", "--sample-shape", "3x32", "-o", "x.json"),
        ("links", "--processes", "0", "-o", "x.json"),
    ],
)
def test_wrong_usage_is_told(plan, arguments):
    assert plan("profile", *arguments).exit_code == 2


@pytest.mark.parametrize("what", [("model", "gpt-mini"), ("links",)])
def test_without_torch_it_says_how_to_install_it(plan, tmp_path, monkeypatch, what):
    monkeypatch.setattr("stagecut.planner.cli.options.profile.find_spec", lambda name: None)
    done = plan("profile", *what, "-o", tmp_path / "out.json")
    assert done.exit_code == 3
    assert done.stderr == "Error: plan profile needs torch: pip install 'stagecut[run]'\n"


def test_doctor_lists_devices(plan, torch):
    shown = plan("doctor", "--devices")
    assert shown.exit_code == 0
    assert "gloo" in shown.stdout
    assert "GLOO_SOCKET_IFNAME" in shown.stdout


def test_doctor_without_torch_says_how_to_install_it(plan, monkeypatch):
    monkeypatch.setattr("stagecut.planner.cli.commands.doctor.find_spec", lambda name: None)
    shown = plan("doctor", "--devices")
    assert shown.exit_code == 0
    assert "pip install 'stagecut[run]'" in shown.stdout.rpartition("devices")[2]


def keys(tree):
    if isinstance(tree, list):
        return {key for item in tree for key in keys(item)}
    if isinstance(tree, dict):
        return set(tree) | {inner for item in tree.values() for inner in keys(item)}
    return set()


def test_time_limit_leaves_out_all_sizes_but_the_first(plan, torch, tmp_path):
    """A million rounds are asked for; there is time for one of each of the six kinds."""
    path = tmp_path / "tiny.json"
    options = ("--layers", LAYERS, "--micro-batch", "1,2", "--warmup", "0", "--repetitions", "1000000")
    limits = ("--time-limit", "1e-9", "--threads", "1", "-o", path)
    done = plan("profile", "model", *options, *limits, "--json")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["left_out"] == [2]
    assert [stage["samples"] for stage in answer["stage"]] == [1]
    assert "note: --time-limit left out micro-batches of 2" in done.stderr
    assert [[times["samples"] for times in layer["times"]] for layer in answer["layers"]] == [[1]] * 6
