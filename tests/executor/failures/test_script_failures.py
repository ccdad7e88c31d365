"""A fault of a user's script is told once, however many ranks have it: by our launcher, and under torchrun."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from stagecut.executor.ranks.failures import FailureKind, FailureReport
from stagecut.executor.ranks.reporting import is_first_to_report

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("failing_script.py")
WATCHDOG_S = 120
LOGGED_BY_TORCHRUN = re.compile(r"^[WE]\d{4} ", re.MULTILINE)
PATH = f"{ROOT}{os.pathsep}{Path(__file__).with_name('lean')}"
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]


@pytest.fixture
def started(tmp_path):
    """Run the script on two ranks; the exit code, stdout and stderr."""

    def run(launcher, how):
        done = subprocess.run(
            [sys.executable, *launcher, str(SCRIPT), how],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=WATCHDOG_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def ours(two_stages):
    """Our launcher."""
    return ["-m", "stagecut.executor", str(two_stages)]


def errors(stderr):
    return [line for line in stderr.splitlines() if line.startswith("Error: ")]


def test_our_launcher_tells_one_message_without_a_traceback(started, ours):
    """Both ranks find that the plan has a layer more."""
    code, _, stderr = started(ours, "layers")
    assert code == 3
    assert len(errors(stderr)) == 1, stderr
    assert "Traceback" not in stderr


def test_bug_of_the_script_has_one_traceback_and_one_message(started, ours):
    """All ranks run it and fail, but the location in the script is shown once: it is what the author needs."""
    code, stdout, stderr = started(ours, "bug")
    assert code == 1
    assert sorted(stdout.splitlines()) == [f"rank {rank} of {SCRIPT} does bug" for rank in range(2)]
    assert len(errors(stderr)) == 1
    assert errors(stderr)[0].endswith("ValueError: a bug of the script")
    assert stderr.count("Traceback") == 1


@pytest.mark.parametrize(
    ("how", "message"),
    [("one", "; rank 1: inputs int, int, targets NoneType"), ("alone", "executor: the plan has 2 devices")],
)
def test_under_torchrun_too(started, how, message):
    """A batch that rank 1 alone has wrong, while 0 waits for it; and ranks that have not joined.

    The traceback is torchrun's own, of its having lost a rank.
    """
    code, _, stderr = started(TORCHRUN, how)
    assert code == 1
    assert len(errors(stderr)) == 1, stderr
    assert message in errors(stderr)[0]
    assert "Traceback" not in re.split(LOGGED_BY_TORCHRUN, stderr)[0]


def report(kind, message, rank=0):
    return FailureReport(rank=rank, kind=kind, message=message)


def test_what_others_have_told_is_not_told_again():
    store = dist.HashStore()
    assert is_first_to_report(report(FailureKind.INPUT, "no plan"), store)
    assert not is_first_to_report(report(FailureKind.INPUT, "no plan", rank=1), store)
    assert is_first_to_report(report(FailureKind.INPUT, "no layers", rank=1), store)


def test_lost_connection_is_told_where_nobody_has_said_why():
    store = dist.HashStore()
    assert is_first_to_report(report(FailureKind.LOST, "closed"), store)
    assert not is_first_to_report(report(FailureKind.LOST, "reset", rank=2), store)
    explained = dist.HashStore()
    assert is_first_to_report(report(FailureKind.ERROR, "a bug", rank=1), explained)
    assert not is_first_to_report(report(FailureKind.LOST, "closed"), explained)


def test_without_a_store_everybody_tells():
    assert is_first_to_report(report(FailureKind.LOST, "closed"), None)
