"""What bad input gets: exit code 3, one clear message, no traceback, no file."""

import pytest

GIB_HOLE = 200_000_000


def refused(done, *words):
    """The lines on stderr, after a look at everything that has to hold."""
    assert done.exit_code == 3, done.output
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines
    assert all(line.startswith("Error: ") for line in lines)
    for word in words:
        assert word in done.stderr
    return lines


@pytest.fixture
def solve_with(plan, tiny_folder, tmp_path):
    """Solve the tiny problem with one of its files changed; nothing must be written."""

    def solve(kind, content):
        folder = tmp_path / "inputs"
        folder.mkdir()
        bad = folder / f"{kind}.yaml"
        bad.write_bytes(content)
        files = {name: tiny_folder / f"{name}.yaml" for name in ("profile", "cluster", "job")} | {kind: bad}
        output = tmp_path / "plan.json"
        done = plan(
            *("solve", "--model", files["profile"], "--cluster", files["cluster"], "--job", files["job"]),
            *("-o", output, "--trace", tmp_path / "trace.json"),
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["inputs"]
        return done

    return solve


CHANGES = {
    "unknown key": ("cluster", "    nic:", "    nick:", ("nick", "did you mean 'nic'?")),
    "wrong type": ("job", "global_batch: 32", "global_batch: many", ("global_batch", "whole number")),
    "text for a number": ("cluster", "memory_bytes: 16e9", "memory_bytes: 16GB", ("memory_bytes", "'16GB'")),
    "negative number": ("profile", "params_bytes: 40e6", "params_bytes: -1", ("params_bytes", "-1")),
    "not a number": ("profile", "saved_bytes: 1e6", "saved_bytes: .nan", ("saved_bytes", "nan")),
    "infinite number": ("profile", "output_bytes: 1e6", "output_bytes: .inf", ("output_bytes", "inf")),
    "zero devices": ("cluster", "count: 2", "count: 0", ("count", "from 1")),
    "unknown device type": ("cluster", "device_type: V100", "device_type: V10", ("'V10'", "did you mean 'V100'?")),
    "no micro-batch divides": ("job", "micro_batches: [1, 2, 4]", "micro_batches: [5]", ("divides", "32")),
    "edge backwards": ("profile", "from: embedding, to: head", "from: head, to: embedding", ("must lead forward",)),
    "edge to nowhere": ("profile", "to: head", "to: heat", ("heat", "did you mean 'head'?")),
    "duplicate layer": ("profile", "name: attention-2", "name: attention-1", ("appears twice",)),
    "duplicate server": ("cluster", "name: slow", "name: fast", ("appears twice",)),
    "repeated key": ("job", "precision: fp16", "precision: fp16\nprecision: fp16", ("the key appears twice",)),
    "another version": ("job", "schema: 1", "schema: 2", ("schema", "must be 1")),
    "other kind of file": ("job", "global_batch: 32", "servers: []", ("expected a job file",)),
    "other precision": ("job", "precision: fp16", "precision: fp32", ("precision", "fp32", "fp16")),
    "no way to time a device": ("cluster", "name: T4", "name: K80", ("T4", "not one of this cluster")),
}


@pytest.mark.parametrize("fault", CHANGES)
def test_fault_in_a_file_is_told(solve_with, tiny_folder, fault):
    kind, old, new, words = CHANGES[fault]
    text = (tiny_folder / f"{kind}.yaml").read_text()
    assert old in text
    refused(solve_with(kind, text.replace(old, new, 1).encode()), *words)


CONTENTS = {
    "empty file": (b"", "is empty"),
    "empty model": (b"schema: 1\nname: none\nlayers: []\n", "layers"),
    "broken YAML": (b"schema: 1\nlayers: [\n", "neither JSON nor YAML"),
    "broken JSON": (b'{"schema": 1,\n', "neither JSON nor YAML"),
    "aliases that explode": (b"a: &a [1]\nb: &b [*a, *a]\nlayers: [*b, *b]\n", "aliases (*name) are not supported"),
    "not UTF-8": (b"schema: 1\nname: K\xf6ln\n", "not UTF-8"),
    "binary": (b"\x00\x01\x02", "NUL"),
    "a list": (b"- 1\n- 2\n", "mapping"),
    "deep nesting": (b"[" * 5000, "levels deep"),
}


@pytest.mark.parametrize("fault", CONTENTS)
def test_file_that_is_no_profile_is_told(solve_with, fault):
    content, words = CONTENTS[fault]
    refused(solve_with("profile", content), words)


def test_complaints_name_file_and_line(solve_with, tiny_folder):
    """The name of the first device type is on line 5, its memory on line 6."""
    text = (tiny_folder / "cluster.yaml").read_text().replace("memory_bytes: 16e9", "memory_bytes: -1", 1)
    (line,) = refused(solve_with("cluster", text.encode()))
    assert "cluster.yaml:6: device_types[0].memory_bytes: " in line


def test_all_faults_of_a_file_are_told_at_once(solve_with, tiny_folder):
    text = (tiny_folder / "profile.yaml").read_text().replace("kind: attention", "kinds: attention")
    assert len(refused(solve_with("profile", text.encode()))) == 2


@pytest.mark.parametrize("option", ["--model", "--cluster", "--job"])
def test_huge_file_folder_and_missing_file_are_told(plan, tiny, tmp_path, option):
    huge, missing = tmp_path / "huge.yaml", tmp_path / "missing.yaml"
    with huge.open("wb") as file:
        file.truncate(GIB_HOLE)
    refused(plan("solve", *tiny, option, huge), "larger than 16 MB")
    refused(plan("solve", *tiny, option, tmp_path), "is a folder")
    refused(plan("solve", *tiny, option, missing), "no such file")


def test_output_that_cannot_be_written_is_told_before_the_search(plan, tiny, tmp_path):
    existing = tmp_path / "old.svg"
    existing.write_text("old")
    for option in ("-o", "--trace", "--convergence"):
        refused(plan("solve", *tiny, option, existing), "--force")
        refused(plan("solve", *tiny, option, tmp_path / "none" / "plan.svg"), "does not exist; create it first")
        refused(plan("solve", *tiny, option, existing / "plan.svg"), "folder")
    assert existing.read_text() == "old"


def test_folder_is_no_output(plan, tiny, tmp_path):
    for option in ("-o", "--trace"):
        refused(plan("solve", *tiny, option, tmp_path), "is a folder")


def test_one_file_cannot_be_two_outputs(plan, tiny, tmp_path):
    path = tmp_path / "out.json"
    refused(plan("solve", *tiny, "-o", path, "--trace", path), "two outputs")
    assert not path.exists()


def test_chart_of_an_unknown_format_is_told(plan, tiny, tmp_path):
    for option in ("--gantt", "--convergence"):
        refused(plan("solve", *tiny, option, tmp_path / "chart.pdf"), ".png or .svg")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--global-batch", "0"), "global_batch"),
        (("--global-batch", "-4"), "global_batch"),
        (("--micro-batch", "5,7"), "divides the global batch 32"),
        (("--micro-batch", "0"), "micro_batches"),
        (("--replicas", "0"), "replicas"),
        (("--precision", "bf16"), "bf16"),
        (("--sequence-length", "64"), "--sequence-length"),
        (("--gap", "nan"), "gap"),
        (("--gap", "-1"), "gap"),
        (("--gap", "1"), "gap"),
        (("--time-limit", "-1"), "time_limit_s"),
        (("--time-limit", "nan"), "time_limit_s"),
        (("--memory-limit", "0GB"), "memory_limit_bytes"),
    ],
)
def test_option_out_of_range_is_bad_input(plan, tiny, options, words):
    refused(plan("solve", *tiny, *options), words)


@pytest.mark.parametrize(
    "options",
    [
        ("--global-batch", "many"),
        ("--global-batch", "10000000000"),
        ("--micro-batch", "1,,2"),
        ("--micro-batch", "1.5"),
        ("--micro-batch", "4-1"),
        ("--micro-batch", "1-999999999"),
        ("--schedule", "2f2b"),
        ("--replicas", "some"),
        ("--gap", "small"),
        ("--time-limit", "soon"),
        ("--memory-limit", "little"),
        ("--memory-limit", "4"),
        ("--memory-limit", "-4GiB"),
        ("--memory-limit", "4gb"),
        ("--solver", "best"),
        ("--seed", "-1"),
        ("--threads", "0"),
        ("--modle", "vgg16"),
    ],
)
def test_option_that_cannot_be_read_is_wrong_usage(plan, tiny, options):
    done = plan("solve", *tiny, *options)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Usage: plan solve" in done.stderr


def test_global_batch_has_to_be_stated_somewhere(plan):
    done = plan("solve", "--model", "vgg16", "--cluster", "cpu-2")
    assert done.exit_code == 2
    assert "--global-batch" in done.stderr


@pytest.mark.parametrize("name", ["no-such-model", "", "x" * 5000, "a\0b"])
def test_unknown_names_are_told(plan, name):
    options = ("--global-batch", 4)
    refused(plan("solve", "--model", name, "--cluster", "cpu-2", *options), "unknown model", "no such file")
    refused(plan("solve", "--model", "vgg16", "--cluster", name, *options), "unknown cluster", "no such file")


@pytest.mark.parametrize("command", ["check", "simulate", "explain"])
def test_broken_plan_files_are_told(plan, changed_plan, command):
    path = changed_plan(lambda tree: tree["plan"]["pipelines"][0]["stages"][0].update(devices=["nowhere/0"]))
    refused(plan(command, path), "'nowhere/0' is not a device of cluster")
    refused(plan(command, path.with_name("missing.json")), "no such file")
