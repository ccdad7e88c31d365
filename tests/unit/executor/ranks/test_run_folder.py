"""Folders of runs: kept while their process lives, removed by the next run when it does not."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stagecut.executor.ranks.run_folder import LOCK, PREFIX, remove_abandoned, run_folder

ROOT = Path(__file__).parents[4]
HOLDS_ONE = (
    "from stagecut.executor.ranks.run_folder import run_folder as f\nwith f() as p: print(p, flush=True); input()"
)
AN_HOUR_AGO = 1_000_000_000.0


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Where folders of runs are made."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def holder():
    """Another process that holds a folder; the process, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS_ONE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_folder_is_for_its_user_alone_and_goes_in_the_end():
    with run_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "something").write_text("")
    assert not folder.exists()


def test_folder_of_a_living_process_stays(holder):
    _, folder = holder
    with run_folder():
        assert folder.is_dir()


def test_folder_of_a_killed_process_is_removed_by_the_next_run(holder):
    process, folder = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.is_dir()
    with run_folder():
        assert not folder.exists()


def abandoned(parent, *, name="x"):
    folder = parent / f"{PREFIX}{name}"
    folder.mkdir()
    (folder / LOCK).write_text("")
    return folder


def test_folder_of_another_user_is_left_alone(temporary, monkeypatch):
    folder = abandoned(temporary)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    remove_abandoned()
    assert folder.is_dir()


def test_links_by_the_name_of_a_folder_are_not_followed(temporary, tmp_path_factory):
    elsewhere = abandoned(tmp_path_factory.mktemp("elsewhere"))
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    remove_abandoned()
    assert (elsewhere / LOCK).exists()


def test_folder_without_a_lock_is_removed_when_it_is_old(temporary):
    """A young one may be in the making."""
    young, old = temporary / f"{PREFIX}young", temporary / f"{PREFIX}old"
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (AN_HOUR_AGO, AN_HOUR_AGO))
    remove_abandoned()
    assert young.exists()
    assert not old.exists()
