"""stdout that is full, closed, or read by nobody; stderr that is gone; names that an encoding lacks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def shell(arguments, redirections="", **environment):
    """Run `plan` by a shell, with redirections."""
    words = [sys.executable, "-m", "stagecut", *map(str, arguments)]
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirections}', "sh", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("solve", "--help"), ("clusters", "--json")])
@pytest.mark.parametrize(("redirection", "reason"), [("> /dev/full", "No space left"), (">&-", "it is closed")])
def test_answer_that_stdout_does_not_take_is_bad_input(arguments, redirection, reason):
    done = shell(arguments, redirection)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: stdout: cannot be written: {reason}")


def test_table_that_stdout_does_not_take_is_bad_input():
    """It is written in parts, the last of them when the program ends."""
    assert shell(["clusters"], "> /dev/full").returncode == 3


def test_plan_is_written_to_its_file_where_stdout_is_full(plan, tiny, tmp_path):
    done = shell(["solve", *tiny, "--json", "--quiet", "-o", tmp_path / "plan.json"], "> /dev/full")
    assert done.returncode == 3
    assert plan("check", tmp_path / "plan.json").exit_code == 0


def test_nothing_is_said_where_both_streams_are_closed():
    assert shell(["clusters", "--json"], ">&- 2>&-").returncode == 3


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full", "<&- 2>&-"])
def test_answer_is_whole_where_stderr_is_gone(tiny, redirection):
    """Progress of the search goes nowhere, least of all to stdout."""
    done = shell(["solve", *tiny, "--json"], redirection)
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "optimal"


@pytest.mark.parametrize("arguments", [("clusters",), ("clusters", "--json"), ("--help",)])
def test_pipe_that_nobody_reads_is_silent(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "stagecut", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=120, check=False)
    os.close(writer)
    assert done.returncode == 141  # 128 + SIGPIPE
    assert done.stderr == b""


def test_pipe_that_does_not_block_gets_all():
    """A pipe takes 64 KiB at once: the schema is longer than what is left once it is nearly full."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    num_filled = os.write(writer, b" " * 65536)
    command = [sys.executable, "-m", "stagecut", "schema", "plan"]
    with subprocess.Popen(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE) as running:
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            content = file.read()
        assert running.stderr.read() == b""
    assert running.returncode == 0
    assert json.loads(content[num_filled:])


def test_names_that_the_encoding_lacks_are_escaped(tmp_path, tiny_folder):
    path = tmp_path / "cluster.yaml"
    path.write_text((tiny_folder / "cluster.yaml").read_text().replace("tiny-2x2", "Zürich"), encoding="utf-8")
    done = shell(["clusters", "show", path], PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0
    assert "Z\\xfcrich" in done.stdout


def test_output_that_stdout_goes_to_is_refused(tiny, tmp_path):
    path = tmp_path / "plan.json"
    done = shell(["solve", *tiny, "--force", "-o", path], f'> "{path}"')
    assert done.returncode == 3
    assert "stdout is redirected to this file" in done.stderr
