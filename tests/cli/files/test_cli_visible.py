"""Hidden characters of files, file names, options and variables are seen in whatever is printed."""

import io
import itertools
import json
import os
import subprocess
import sys
import unicodedata
import warnings
from pathlib import Path

import pytest
import yaml
from runs import RUN

from stagecut.planner.io.files.run_history import to_tree

ROOT = Path(__file__).parents[3]
FOREIGN = ROOT / "tests" / "regression" / "data" / "foreign"
HIDDEN = "a\u202e\u2066\u200b\u200d\ufeff\u2060\u061c\U000e0041\u115f\ufe0fz"
"""Directions, no width, a tag, a filler, a variation selector: names may hold them."""
HOSTILE = HIDDEN + "\x1b[31m\x07\x9b\x7f\r\nError: forged\u2028Error: forged\x85Error: forged"
"""Controls of both sets, and lines that look like ours."""
WITHOUT_LOOK = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def looked_at(done, *, codes=(0, 2, 3, 4, 6)):
    """What was printed, after a look at every character and at the beginning of every line."""
    assert done.exit_code in codes, done.output
    text = done.stdout + done.stderr
    shown = set(text) - {"\n"}
    assert [letter for letter in shown if unicodedata.category(letter) in WITHOUT_LOOK or letter in HIDDEN[1:-1]] == []
    assert "Error: forged" not in [line.strip() for line in text.splitlines()]
    return text


def strings(tree, prefix=()):
    """Places of all texts of a tree."""
    for step, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(child, str):
            yield (*prefix, step)
        elif isinstance(child, dict | list):
            yield from strings(child, (*prefix, step))


def keys(tree, prefix=()):
    """Places of all mappings' keys."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, child in items:
        if isinstance(tree, dict):
            yield (*prefix, step)
        yield from keys(child, (*prefix, step))


def spoilt(tree):
    """Copies of a tree, one text of each hostile; then one key of each. Of alike neighbours only the first."""
    text = json.dumps(tree)
    for found, is_key in ((strings(tree), False), (keys(tree), True)):
        alike = {tuple(0 if isinstance(step, int) else step for step in place): place for place in found}
        for *above, last in alike.values():
            copy = json.loads(text)
            parent = copy
            for step in above:
                parent = parent[step]
            if is_key:
                parent[HOSTILE] = parent.pop(last)
            else:
                parent[last] = HOSTILE
            yield copy


@pytest.fixture
def spoil(tmp_path):
    """A file named hostile, with this content."""

    def write(content, suffix=".json"):
        path = tmp_path / (HOSTILE + suffix)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


@pytest.fixture
def trees(tiny_folder):
    """The files of examples/tiny by the option that takes them."""
    return {
        f"--{'model' if name == 'profile' else name}": yaml.load(
            (tiny_folder / f"{name}.yaml").read_text().replace("forward_s: {V100: {1:", "forward_s: {V100: {'1':"),
            Loader=yaml.BaseLoader,
        )
        for name in ("profile", "cluster", "job")
    }


@pytest.mark.parametrize("option", ["--model", "--cluster", "--job"])
def test_inputs(plan, tiny, trees, spoil, option):
    for tree in spoilt(trees[option]):
        path = spoil(tree)
        assert looked_at(plan("solve", *tiny, option, path, "--dry-run"))
        if option != "--job":
            assert looked_at(plan("models" if option == "--model" else "clusters", "show", path))


COMMANDS = (
    ("check",),
    ("simulate",),
    ("explain", "--what-if", "nic", "--solver", "even"),
    ("convert", "--to", "torchtitan"),
)


def test_plan_files(plan, plan_file, spoil):
    """Each in turn; all of them read the file in the same way."""
    trees = spoilt(json.loads(plan_file.read_text()))
    for tree, command in zip(trees, itertools.cycle(COMMANDS), strict=False):
        assert looked_at(plan(*command, spoil(tree)))


def test_histories(plan, tiny_folder, spoil):
    for tree in spoilt(to_tree(RUN)):
        path = spoil(f"{json.dumps(to_tree(RUN))}\n{json.dumps(tree)}\n", suffix=".jsonl")
        assert looked_at(plan("history", path))
        assert looked_at(plan("calibrate", path, "--profile", tiny_folder / "profile.yaml"))


@pytest.mark.parametrize("name", ["piper.json", "workload.json", "fast.json"])
def test_files_of_other_planners(plan, spoil, tmp_path, name):
    for tree in spoilt(json.loads((FOREIGN / name).read_text())):
        assert looked_at(plan("convert", spoil(tree), "-o", tmp_path / f"{HOSTILE}.out", "--force"))


def test_graphs_of_other_planners(plan, spoil, tmp_path):
    graph = (FOREIGN / "graph.txt").read_text()
    for word in ("node2", "Embedding", "forward_compute_time", "0.500", " -- "):
        path = spoil(graph.replace(word, HOSTILE), suffix=".txt")
        assert looked_at(plan("convert", path, "-o", tmp_path / "out", "--force"))


@pytest.fixture
def hidden_files(trees, tmp_path):
    """The tiny problem, everything in it called something with hidden characters, as options."""
    paths = []
    for option, tree in trees.items():
        text = json.dumps(tree)
        for name in ("V100", "T4", "fast", "slow", "tiny-2x2", "tiny-6", "embedding", "attention-1", "head"):
            text = text.replace(f'"{name}"', json.dumps(name + HIDDEN))
        text = text.replace("NVIDIA V100 data sheet", "data\\nError: forged")
        path = tmp_path / f"{HOSTILE}{option}.json"
        path.write_text(_numbers(text))
        paths += [option, path]
    return (*paths, "--pipelines", "1")


def _numbers(text):
    """YAML read without types gave numbers as texts."""
    return json.dumps(json.loads(text, object_hook=lambda entry: {key: _number(item) for key, item in entry.items()}))


def _number(item):
    try:
        return int(item)
    except (ValueError, TypeError):
        pass
    try:
        return float(item)
    except (ValueError, TypeError):
        return [_number(each) for each in item] if isinstance(item, list) else item == "true" or item


def test_a_whole_problem_with_hidden_names(plan, hidden_files, tmp_path):
    """`\\u202e` is made visible in names and files."""
    solved, picture = tmp_path / f"{HOSTILE}.plan", tmp_path / f"{HOSTILE}.svg"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = ("-o", solved, "--gantt", picture, "--trace", tmp_path / "trace")
        text = looked_at(plan("solve", *hidden_files, "--verbose", *outputs), codes=(0,))
    assert "fasta\\u202e" in text
    assert f"wrote {tmp_path}/a\\u202e" in text
    assert "\u202e" not in picture.read_text()
    for command in ("check", "simulate", ("explain", "--what-if", "server", "--solver", "greedy")):
        words = (command,) if isinstance(command, str) else command
        assert looked_at(plan(*words, solved), codes=(0,))
        assert looked_at(plan(*words, solved, "--json"), codes=(0,))
    assert "data\\nError: forged" in looked_at(plan("clusters", "show", hidden_files[3]), codes=(0,))
    assert looked_at(plan("models", "show", hidden_files[1]), codes=(0,))
    assert looked_at(plan("compare", *hidden_files, "--solvers", "greedy,even"), codes=(0,))


OPTIONS = {
    "solve": (
        *("--model", "--cluster", "--job", "--global-batch", "--micro-batch", "--schedule", "--recompute"),
        *("--replicas", "--tensor-parallel", "--pipelines", "--chunks", "--slice", "--action-overhead"),
        *("--precision", "--optimizer", "--sequence-length", "--solver", "--gap", "--time-limit"),
        *("--memory-limit", "--rows", "--seed", "--threads", "-o", "--trace", "--gantt", "--convergence"),
    ),
    "compare": ("--solvers",),
    "explain": ("--what-if",),
    "convert": ("--from", "--name", "--device-type", "--time-unit", "--bytes-from", "--to", "--schedule-csv"),
    "schema": (),
    "models": (),
    "run": ("--steps", "--mode", "--layers", "--history", "--learning-rate", "--timeout", "-o"),
}


@pytest.mark.parametrize("command", OPTIONS)
@pytest.mark.parametrize(
    "text",
    [HOSTILE, f"/{HOSTILE}/file", f"{HOSTILE}.json", "\udcff\udc9b"],
    ids=["hostile", "folder", "file", "bytes"],
)
def test_options(plan, tiny, command, text):
    rest = tiny if command in ("solve", "compare") else ()
    assert looked_at(plan(text))
    assert looked_at(plan(command, text))
    assert looked_at(plan(command, *rest, text))
    assert looked_at(plan(command, f"--{text}"))
    for option in OPTIONS[command]:
        assert looked_at(plan(command, *rest, "--dry-run" if command == "solve" else "--json", option, text))


def test_letters_of_all_scripts_and_signs_stay(plan, tiny):
    done = plan("solve", *tiny, "--model", "Ünï-שלום-مرحبا-日本-🙂-e\u0301-\u00a0-x")
    assert "'Ünï-שלום-مرحبا-日本-🙂-e\u0301-" in done.stderr


class Terminal(io.StringIO):
    """A stream that says that it is one."""

    def isatty(self):
        return True


def test_on_a_terminal_too(plan, hidden_files, monkeypatch):
    """Tables with colours, and the live line of progress: escape sequences are ours alone."""
    from stagecut.planner.cli.main import main

    stdout, stderr = Terminal(), Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", stderr)
    arguments = [str(each) for each in ("compare", *hidden_files, "--solvers", "greedy,even")]
    assert main(arguments, standalone_mode=False) in (0, None)
    assert "\x1b[" in stderr.getvalue()
    assert not set(HIDDEN[1:-1]) & set(stdout.getvalue() + stderr.getvalue())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_streams_of_any_encoding_hide_nothing(tmp_path, encoding):
    """A file of its own: click looks behind streams that say they are ASCII."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-m", "stagecut", "models", "show", f"ü{HIDDEN}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 3
    assert b"a\\u202e\\u2066" in done.stderr
    assert done.stderr.decode(encoding).removesuffix("\n").isprintable()


def test_shells_complete_commands():
    environment = {**os.environ, "_PLAN_COMPLETE": "bash_complete", "COMP_WORDS": "plan so", "COMP_CWORD": "1"}
    code = "from stagecut.planner.cli.main import main; main(prog_name='plan')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("plain,solve\n", "")
