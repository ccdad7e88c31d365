"""Reading the bytes of an input."""

import os

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents.input_file import MAX_FILE_BYTES, read_text


def test_byte_order_mark_is_passed_over(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read_text(path) == "name: x\n"


def test_missing_file_is_named(tmp_path):
    with pytest.raises(BadInputError, match=r"nowhere\.yaml: no such file"):
        read_text(tmp_path / "nowhere.yaml")


def test_folder_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="is a folder"):
        read_text(tmp_path)


def test_200_mb_file_is_refused_unread(tmp_path):
    """The file has a hole of 200 MB: reading it would decode to NUL characters instead."""
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(BadInputError, match="larger than 16 MB"):
        read_text(path)


def test_file_of_the_largest_size_is_read(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * MAX_FILE_BYTES)
    assert len(read_text(path)) == MAX_FILE_BYTES


def test_latin_1_is_refused_with_its_line(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes("a: 1\nname: Zürich\n".encode("latin-1"))
    with pytest.raises(BadInputError, match=r"latin\.yaml:2: not UTF-8"):
        read_text(path)


def test_nul_is_refused_with_its_line(tmp_path):
    path = tmp_path / "nul.yaml"
    path.write_bytes(b"a: 1\nb: \0\n")
    with pytest.raises(BadInputError, match=r"nul\.yaml:2: contains a NUL"):
        read_text(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads everything")
def test_unreadable_file_is_refused(tmp_path):
    path = tmp_path / "secret.yaml"
    path.touch(mode=0o000)
    with pytest.raises(BadInputError, match="cannot be read"):
        read_text(path)


@pytest.mark.parametrize("path", ["nul\0in-name", "x" * 5000, "\ud800"], ids=["nul", "long", "surrogate"])
def test_impossible_path_is_refused(path):
    with pytest.raises(BadInputError):
        read_text(path)
