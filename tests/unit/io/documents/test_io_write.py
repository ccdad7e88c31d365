"""Outputs are written whole or not at all."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stagecut.planner.core.messages.errors import OutputError
from stagecut.planner.io.documents.write import check_writable, write_bytes

ROOT = Path(__file__).parents[4]


def test_text_is_written_and_nothing_else_is_left(tmp_path):
    write_bytes(tmp_path / "plan.json", "é\n".encode())
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    assert (tmp_path / "plan.json").read_bytes() == "é\n".encode()


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "usual").touch()
    write_bytes(tmp_path / "ours", b"x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_existing_output_is_kept_without_force(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("old")
    with pytest.raises(OutputError, match=r"already exists; use --force"):
        write_bytes(path, b"new")
    assert path.read_text() == "old"


def test_existing_output_is_replaced_with_force(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("old")
    write_bytes(path, b"new", force=True)
    assert path.read_text() == "new"


def test_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_bytes(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "x"


def test_folder_as_output_is_refused(tmp_path):
    with pytest.raises(OutputError, match="is a folder"):
        check_writable(tmp_path, force=True)


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(OutputError, match="create it first"):
        check_writable(tmp_path / "nowhere" / "plan.json")


def test_file_in_the_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        check_writable(tmp_path / "file" / "plan.json")


def test_devices_are_not_replaced():
    """A rename over /dev/null would take it away from everyone."""
    with pytest.raises(OutputError, match="not a regular file"):
        write_bytes("/dev/null", b"", force=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everywhere")
def test_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="is not writable"):
        check_writable(tmp_path / "plan.json")


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(28, "No space left on device")

    (tmp_path / "plan.json").write_text("old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OutputError, match="No space left on device; nothing was written"):
        write_bytes(tmp_path / "plan.json", b"new", force=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("name", ["nul\0", "x" * 300], ids=["nul", "long"])
def test_impossible_name_is_refused(tmp_path, name):
    with pytest.raises(OutputError):
        write_bytes(tmp_path / name, b"x")
    assert list(tmp_path.iterdir()) == []


KILLED_WHILE_WRITING = """
import os, signal, sys
from stagecut.planner.io.documents.write import write_bytes

def kill_at(_frame, event, function):
    if event == "c_call" and function is os.fsync:
        os.kill(os.getpid(), signal.SIGKILL)

sys.setprofile(kill_at)
write_bytes(sys.argv[1], b"half a plan")
"""


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path):
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / "plan.json")]
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".stagecut-")
    write_bytes(tmp_path / "other.json", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]


def test_temporary_file_of_a_living_writer_stays(tmp_path):
    """It holds the lock of its file until it is done."""
    path = tmp_path / ".stagecut-0123456789abcdef.tmp"
    with path.open("xb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_bytes(tmp_path / "first.json", b"x")
        assert path.exists()
    write_bytes(tmp_path / "second.json", b"x")
    assert not path.exists()


def test_files_of_others_stay(tmp_path):
    """Other names, and what no writer of ours leaves: folders, links, pipes."""
    names = [".stagecut-notes.tmp", ".stagecut-0123.tmp", "stagecut-0123456789abcdef.tmp"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".stagecut-aaaaaaaaaaaaaaaa.tmp").mkdir()
    (tmp_path / ".stagecut-bbbbbbbbbbbbbbbb.tmp").symlink_to(tmp_path / names[0])
    os.mkfifo(tmp_path / ".stagecut-cccccccccccccccc.tmp")
    before = set(tmp_path.iterdir())
    write_bytes(tmp_path / "plan.json", b"x")
    assert set(tmp_path.iterdir()) == before | {tmp_path / "plan.json"}


def test_writer_begins_again_where_its_file_was_taken_for_stale(tmp_path, monkeypatch):
    """Another writer finds the file between its creation and its lock."""
    lock, taken = fcntl.flock, []

    def too_late(file, operation):
        if not taken:
            taken.extend(tmp_path.iterdir())
            taken[0].unlink()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", too_late)
    write_bytes(tmp_path / "plan.json", b"x")
    assert len(taken) == 1
    assert [path.read_text() for path in tmp_path.iterdir()] == ["x"]
