"""Ctrl-C and its like at chosen moments: exit code 130 and one line; plan file and answer are whole or missing."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
import os, sys, threading
from stagecut.planner.cli.entry import main

function, numbers = sys.argv.pop(1), [int(number) for number in sys.argv.pop(1).split(",")]

def signal_at(frame, event, _argument):
    if event == "call" and frame.f_code.co_name == function:
        sys.setprofile(None)
        threading.setprofile(None)
        for number in numbers:
            os.killpg(0, number)

threading.setprofile(signal_at)
sys.setprofile(signal_at)
main()
"""
"""Runs the program, and signals its process group, as a terminal does, when the named function is first called."""


def interrupted(function, numbers, *arguments, ignored=None):
    """Send one signal, or several in a row."""
    numbers = ",".join(str(int(number)) for number in (numbers if isinstance(numbers, tuple) else (numbers,)))
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, function, numbers, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        start_new_session=True,
        preexec_fn=None if ignored is None else lambda: signal.signal(ignored, signal.SIG_IGN),
    )


LINE = "Error: interrupted\n"
ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        ("open_streams", signal.SIGINT),
        ("exec_module", signal.SIGTERM),
        ("get_command", signal.SIGINT),
        ("build_cluster", signal.SIGHUP),
        ("build_cluster", ALL),
    ],
)
def test_any_moment_ends_with_one_line_and_no_answer(function, numbers):
    """Imports among them: `exec_module` is what runs a module."""
    done = interrupted(function, numbers, "clusters", "--json")
    assert (done.returncode, done.stderr, done.stdout) == (130, LINE, "")


@pytest.mark.parametrize(
    ("function", "numbers"), [("echo", signal.SIGINT), ("_end", signal.SIGTERM), ("echo", ALL), ("_end", ALL)]
)
def test_answer_that_is_on_its_way_is_written_whole(function, numbers):
    done = interrupted(function, numbers, "clusters", "--json")
    assert (done.returncode, done.stderr) == (130, LINE)
    assert "clusters" in json.loads(done.stdout)


@pytest.mark.parametrize("numbers", [signal.SIGHUP, ALL])
def test_search_prints_one_line_however_many_signals_there_are(tiny, numbers):
    done = interrupted("_record", numbers, "solve", *tiny, "--json", "--quiet")
    assert done.returncode == 130
    assert len(done.stderr.splitlines()) == 1
    assert "interrupted" in done.stderr
    assert not done.stdout or json.loads(done.stdout)["plan"] is not None


def test_signal_that_nohup_ignores_is_ignored():
    done = interrupted("build_cluster", signal.SIGHUP, "clusters", "--json", ignored=signal.SIGHUP)
    assert (done.returncode, done.stderr) == (0, "")


def test_processes_that_measure_say_nothing_of_their_own(tmp_path):
    """The signals reach them while they import torch, and the tracker of their semaphores as well."""
    pytest.importorskip("torch")
    what = ("model", "gpt-mini", "--processes", "2", "--quiet", "-o", tmp_path / "profile.json")
    done = interrupted("_collect", ALL, "profile", *what)
    assert (done.returncode, done.stderr, done.stdout) == (130, LINE, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("function", ["read_document", "_sync"])
def test_any_moment_leaves_a_legal_plan_or_none(plan, tiny, tmp_path, function, number):
    path = tmp_path / "plan.json"
    done = interrupted(function, number, "solve", *tiny, "--force", "-o", path)
    assert "Traceback" not in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"] * path.exists()
    if path.exists():
        assert plan("check", path).exit_code == 0
        assert "per iteration" in done.stdout
    else:
        assert done.returncode == 130
        assert "interrupted" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("function", "words", "written"),
    [
        ("run_cancellable", "no plan yet", False),
        ("_record", "per iteration", True),
        ("_even_split_beside", "per iteration", True),
    ],
)
def test_search_keeps_what_it_has(plan, tiny, tmp_path, function, words, written):
    path = tmp_path / "plan.json"
    done = interrupted(function, signal.SIGINT, "solve", *tiny, "-o", path)
    assert done.returncode in {0, 130}
    assert words in done.stdout
    assert path.exists() == written


def test_old_file_survives_an_interruption_before_the_new_one_is_written(plan_file, tiny, tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(plan_file.read_bytes())
    interrupted("read_document", signal.SIGTERM, "solve", *tiny, "--global-batch", "16", "--force", "-o", path)
    assert path.read_bytes() == plan_file.read_bytes()


def test_explanation_keeps_the_rows_that_are_finished(plan_file):
    """The first row needs no search."""
    done = interrupted("begin_from", signal.SIGINT, "explain", plan_file, "--what-if", "nic,fabric")
    assert done.returncode == 130
    assert "how much" in done.stdout
    assert "nothing more" in done.stdout
    assert "twice as fast" not in done.stdout
    assert "interrupted: the remaining rows are missing" in done.stdout
