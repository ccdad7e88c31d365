"""The script of docs/training.md trains what it says, by a plan for the machine file beside it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "learn_to_count"
PAGE = (ROOT / "docs" / "training.md").read_text()
GUESS = 4.16
"""Loss of a guess among the 64 numbers that occur: ln 64."""


def _run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_page_shows_the_script_of_the_example():
    (shown,) = re.findall(r"```python\n(\"\"\"A GPT that learns to count.*?)```\n", PAGE, re.DOTALL)
    assert shown == (EXAMPLE / "train.py").read_text()


def test_script_learns_more_than_to_guess(tmp_path):
    """Commands of the page, and the first 20 of 60 steps; two stages, so that two processes are needed."""
    (solve,) = re.findall(r"^plan (solve --model gpt-mini .*)$", PAGE, re.MULTILINE)
    (tmp_path / "machine.yaml").write_text((EXAMPLE / "machine.yaml").read_text())
    script = (EXAMPLE / "train.py").read_text().replace("num_steps < NUM_STEPS", "num_steps < 20")
    (tmp_path / "train.py").write_text(script)
    assert "2 stages" in _run(tmp_path, "-m", "stagecut", *solve.split())
    (start,) = re.findall(r"^python (-m stagecut.executor plan.json train.py)$", PAGE, re.MULTILINE)
    told = _run(tmp_path, *start.split())
    losses = [float(loss) for loss in re.findall(r"held out ([0-9.]+)", told)]
    assert len(losses) == 2
    assert losses[0] > losses[1]
    assert losses[1] < GUESS
