"""Pipes and devices as inputs: whatever is read comes to an end."""

import os
import threading

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents import input_file
from stagecut.planner.io.documents.input_file import read_text
from stagecut.planner.io.files.run_history import read_runs

READERS = pytest.mark.parametrize("read", [read_text, read_runs])


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def hasty(monkeypatch):
    """Patience of the default length would make the tests slow."""
    monkeypatch.setattr(input_file, "OPENING_S", 0.05)
    monkeypatch.setattr(input_file, "SILENCE_S", 0.05)


@READERS
def test_pipe_without_a_writer_is_given_up(pipe, hasty, read):
    with pytest.raises(BadInputError, match="pipe: nothing writes to this pipe"):
        read(pipe)


@READERS
def test_pipe_with_a_silent_writer_is_given_up(pipe, hasty, read):
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    try:
        with pytest.raises(BadInputError, match="pipe: nothing writes to this pipe"):
            read(pipe)
    finally:
        os.close(writer)
        os.close(reader)


def test_pipe_is_read_to_its_end(pipe):
    """The writer opens it once the reader waits, and writes more than a pipe holds (64 KiB)."""
    writer = threading.Thread(target=lambda: pipe.write_text("# a\n" * 50_000))
    writer.start()
    assert read_text(pipe) == "# a\n" * 50_000
    writer.join()


def test_pipe_that_nothing_was_written_to_is_empty(pipe):
    writer = threading.Thread(target=lambda: pipe.write_text(""))
    writer.start()
    assert read_text(pipe) == ""
    writer.join()


@READERS
def test_endless_device_is_given_up(read):
    with pytest.raises(BadInputError, match=r"/dev/zero: larger than 1(6|00) MB"):
        read("/dev/zero")


def test_file_of_lines_that_are_no_runs_is_given_up(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"no run\n" * 10_000)
    with pytest.raises(BadInputError, match="more than 1000 lines are not runs") as fault:
        read_runs(path)
    assert len(fault.value.complaints) == 4  # and the first three of them
