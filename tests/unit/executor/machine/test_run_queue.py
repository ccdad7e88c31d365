"""Run-queue delay from schedstat texts written by hand."""

import time
from pathlib import Path

import pytest

from stagecut.executor.machine.run_queue import RunQueue


@pytest.fixture
def tasks(tmp_path):
    """A folder like /proc/self/task; the function writes a thread's text."""

    def write(thread, text):
        folder = tmp_path / thread
        folder.mkdir(exist_ok=True)
        (folder / "schedstat").write_text(text)

    write.folder = tmp_path
    return write


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = {"s": 100.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["s"])
    return now


def test_share_is_the_wait_of_working_threads_over_the_time_passed(tasks, clock):
    """10 ms and 30 ms of waiting in 2 s are 2 %; what was waited before the mark does not count."""
    tasks("1", "500 1000000 7\n")
    tasks("2", "500 5000000 7\n")
    queue = RunQueue(tasks.folder)
    mark = queue.mark()
    clock["s"] += 2.0
    tasks("1", "100000500 11000000 9\n")
    tasks("2", "100000500 35000000 9\n")
    assert queue.share_since(mark) == pytest.approx(0.02)


def test_only_the_main_thread_counts_though_it_hardly_runs(tasks, clock):
    """Both threads waited 10 ms of 1 s and ran for 1 %: thread 2 carries messages."""
    tasks("1", "0 0 1\n")
    tasks("2", "0 0 1\n")
    queue = RunQueue(tasks.folder, main="1")
    mark = queue.mark()
    clock["s"] += 1.0
    tasks("1", "10000000 10000000 9\n")
    tasks("2", "10000000 10000000 9\n")
    assert queue.share_since(mark) == pytest.approx(0.01)


def test_a_thread_that_began_after_the_mark_counts_from_its_beginning(tasks, clock):
    """Thread 2 waited 100 ms of 1 s."""
    tasks("1", "500 1000000 7\n")
    queue = RunQueue(tasks.folder)
    mark = queue.mark()
    clock["s"] += 1.0
    tasks("2", "200000000 100000000 7\n")
    assert queue.share_since(mark) == pytest.approx(0.1)


def test_a_thread_that_has_ended_counts_no_longer(tasks, clock):
    tasks("1", "500 1000000 7\n")
    tasks("2", "500 9000000 7\n")
    queue = RunQueue(tasks.folder)
    mark = queue.mark()
    clock["s"] += 1.0
    (tasks.folder / "2" / "schedstat").unlink()
    assert queue.share_since(mark) == 0.0


@pytest.mark.parametrize("text", ["", "0 0\n"])
def test_a_system_that_counts_nothing_has_share_0(tasks, clock, text):
    tasks("1", text)
    queue = RunQueue(tasks.folder)
    mark = queue.mark()
    clock["s"] += 1.0
    assert queue.share_since(mark) == 0.0
    assert RunQueue(Path("/nowhere/task")).share_since(mark) == 0.0


def test_no_time_passed_is_share_0(tasks, clock):
    tasks("1", "500 1000000 7\n")
    queue = RunQueue(tasks.folder)
    assert queue.share_since(queue.mark()) == 0.0


def test_this_process_has_a_share_of_at_least_0():
    queue = RunQueue()
    assert queue.share_since(queue.mark()) >= 0.0
