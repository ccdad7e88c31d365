"""Every command of docs/tutorial.md runs, in the order of the page, and prints what the page shows but for numbers."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stagecut.planner.cli.main import main
from stagecut.planner.io.files.plan_file import read_plan_file

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\$ (.+)\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE)
"""Commands of the page, each with the output below it."""
QUICKER = {
    "--largest 4MiB": "--threads 1 --largest 4KiB --params 10000 --repetitions 1",
    "--processes 2 --micro-batch 1,2,4,8 --time-limit 40": "--threads 1 --micro-batch 2 --repetitions 1 --time-limit 1",
    "--global-batch 32": "--global-batch 8",
    "--steps 20": "--steps 2 --warmup 1",
}
"""Shorter forms of the commands that measure, and a plan that computes less."""
BETWEEN_STAGES = {"link"}
"""First words of lines that a plan of one stage lacks: measured once, on a busy machine, a link may seem too slow."""


def _run(command, capfd):
    """Return the output of a command; those of `plan` run in this process, which has torch already."""
    for page, test in QUICKER.items():
        command = command.replace(page, test)
    program, *arguments = shlex.split(command)
    if program == "plan":
        done = CliRunner().invoke(main, arguments, prog_name="plan")
        assert done.exit_code == 0, done.output
        return done.output + capfd.readouterr().out
    assert program == "python"
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


def _words(line):
    """The words of a line before its first number."""
    return re.match(r"[^\d$]*", line)[0].split()


@pytest.mark.slow
def test_commands_print_what_the_page_shows(tmp_path, monkeypatch, capfd):
    """Lines may differ in numbers, and a table of the page may leave out columns: the first word of a line is the same.

    The commands share one folder, since each takes what those before it wrote.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "train.py").write_text(script.replace("range(30)", "range(2)").replace("step % 10 == 9", "step == 1"))
    assert len(SHOWN) == 9
    for command, shown in SHOWN:
        printed = {words[0] for line in _run(command, capfd).splitlines() if (words := _words(line))}
        expected = {words[0] for line in shown.splitlines() if (words := _words(line))} - {"..."}
        if (tmp_path / "plan.json").exists() and len(read_plan_file("plan.json").plan.stages) == 1:
            expected -= BETWEEN_STAGES
        assert expected <= printed, command


def test_install_line_is_that_of_the_package():
    """The extras that the page names exist; tests/packaging installs the package."""
    (extras,) = re.findall(r"pip install '\.\[([\w,]+)\]'", PAGE)
    known = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2]
    assert all(f"\n{extra} = [" in known for extra in extras.split(","))
