"""Outputs are written whole or not at all."""

import os

import pytest

from planner.core.errors import OutputError
from planner.io.write import check_writable, write_bytes, write_text


def test_text_is_written_and_nothing_else_is_left(tmp_path):
    write_text(tmp_path / "plan.json", "é\n")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    assert (tmp_path / "plan.json").read_bytes() == "é\n".encode()


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "usual").touch()
    write_text(tmp_path / "ours", "x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_existing_output_is_kept_without_force(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("old")
    with pytest.raises(OutputError, match=r"exists already; use --force"):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_existing_output_is_replaced_with_force(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("old")
    write_text(path, "new", force=True)
    assert path.read_text() == "new"


def test_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_text(tmp_path / "link", "x")
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
    with pytest.raises(OutputError, match="cannot be written to"):
        check_writable(tmp_path / "plan.json")


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(28, "No space left on device")

    (tmp_path / "plan.json").write_text("old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OutputError, match="No space left on device; nothing was written"):
        write_text(tmp_path / "plan.json", "new", force=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("name", ["nul\0", "x" * 300], ids=["nul", "long"])
def test_impossible_name_is_refused(tmp_path, name):
    with pytest.raises(OutputError):
        write_text(tmp_path / name, "x")
    assert list(tmp_path.iterdir()) == []
