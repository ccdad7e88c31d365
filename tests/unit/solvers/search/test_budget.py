"""Limits of a search: memory."""

import pytest

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.solvers.search.budget import STATUS, MemoryWatch, resident_bytes, room_bytes


@pytest.fixture
def status(tmp_path):
    """A file as the system would keep it, of so many kB."""
    path = tmp_path / "status"

    def write(kilobytes):
        path.write_text(f"Name:\tplan\nVmPeak:\t  999999 kB\nVmRSS:\t  {kilobytes} kB\nThreads:\t1\n")
        return path

    return write


def test_resident_memory_is_read_in_bytes(status):
    assert resident_bytes(status(2048)) == 2048 * 1024


@pytest.mark.skipif(not STATUS.exists(), reason="this system has no such file")
def test_resident_memory_of_this_process_is_plausible():
    """An interpreter with numpy holds more than 10 MB."""
    assert 10e6 < resident_bytes() < 1e12


def test_other_files_and_none_tell_nothing(tmp_path):
    (tmp_path / "status").write_text("VmPeak:\t 12 kB\n")
    assert resident_bytes(tmp_path / "status") is None
    assert resident_bytes(tmp_path / "missing") is None


def test_limit_counts_as_exceeded_from_then_on(status):
    watch = MemoryWatch(1e6, status=status(2000))
    assert watch.exceeded
    status(1)
    assert watch.exceeded


def test_limit_that_holds_is_not_exceeded(status):
    assert not MemoryWatch(1e6, status=status(900)).exceeded


def test_limit_without_a_way_to_see_it_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match=r"memory limit needs .*missing"):
        MemoryWatch(1e6, status=tmp_path / "missing")


def test_room_is_what_a_limit_leaves(status):
    """5,000,000 bytes less 2,048,000."""
    assert room_bytes(5e6, status=status(2000)) == 5e6 - 2000 * 1024


def test_room_without_a_limit_is_what_the_system_has_left(tmp_path):
    path = tmp_path / "meminfo"
    assert room_bytes(None, system=path) == float("inf")
    path.write_text("MemTotal:  9000 kB\nMemAvailable:  3000 kB\n")
    assert room_bytes(None, system=path) == 3000 * 1024
