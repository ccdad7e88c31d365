"""Ctrl-C and SIGTERM at chosen moments: a legal plan file or none, and a clear word about it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys, threading
from planner.cli.main import main

function, number = sys.argv.pop(1), int(sys.argv.pop(1))

def signal_at(frame, event, _argument):
    if event == "call" and frame.f_code.co_name == function:
        sys.setprofile(None)
        threading.setprofile(None)
        os.kill(os.getpid(), number)

threading.setprofile(signal_at)
sys.setprofile(signal_at)
main(prog_name="plan")
"""
"""Runs the command line, and sends a signal to itself when the named function is called for the first time."""


def interrupted(function, number, *arguments):
    command = [sys.executable, "-c", SCRIPT, function, str(int(number)), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


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
        ("_even_split_s", "per iteration", True),
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
    assert "what binds" in done.stdout
    assert "nothing more" in done.stdout
    assert "twice as fast" not in done.stdout
    assert "interrupted: the other rows are missing" in done.stdout
