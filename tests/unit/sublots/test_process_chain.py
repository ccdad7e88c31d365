"""Processes in a line, and the cuts of their sublots."""

import numpy as np
import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.sublot_sizes import divisors, is_union, powers_of_two, sublot_cuts
from stagecut.planner.sublots.process_chain import Process, ProcessChain, affine
from tests.sublot_lines import affine_chain


@pytest.mark.parametrize(
    ("size", "last_partial", "first_partial"),
    [
        (1, [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        (2, [0, 2, 4, 5], [0, 1, 3, 5]),
        (3, [0, 3, 5], [0, 2, 5]),
        (5, [0, 5], [0, 5]),
    ],
)
def test_five_samples_are_cut_with_the_smaller_sublot_at_one_end(size, last_partial, first_partial):
    assert sublot_cuts(5, size).tolist() == last_partial
    assert sublot_cuts(5, size, partial_first=True).tolist() == first_partial


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(2, 4, True), (2, 2, True), (2, 3, False), (2, 7, True), (3, 6, True), (4, 2, False), (3, 7, True), (5, 6, False)],
)
def test_unions_have_a_multiple_of_the_size_or_all_samples(part, whole, expected):
    """Seven samples; each is compared with the ends of the sublots themselves."""
    assert is_union(7, part, whole) is expected
    assert bool(np.isin(sublot_cuts(7, whole), sublot_cuts(7, part)).all()) is expected


def test_sets_of_sizes():
    assert powers_of_two(12) == (1, 2, 4, 8)
    assert powers_of_two(1) == (1,)
    assert divisors(12) == (1, 2, 3, 4, 6, 12)


def test_affine_times_have_a_setup_and_a_time_per_sample():
    assert affine("p", 2.0, 0.5, 4, (1, 4)).seconds.tolist() == [2.0, 2.5, 3.0, 3.5, 4.0]


@pytest.mark.parametrize("sizes", [(), (0, 1), (2, 1), (1, 1), (1, 5)])
def test_sizes_are_ascending_numbers_of_samples(sizes):
    with pytest.raises(BadInputError, match=r"head: sizes must be ascending, from 1 to 4 samples, got \("):
        Process(name="head", seconds=np.ones(5), sizes=sizes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_time_that_some_sublot_needs_is_known(bad):
    """Seven samples by threes: 3, 3, 1."""
    seconds = np.array([0, bad, 1, 1, 1, 1, 1, 1.0])
    with pytest.raises(BadInputError, match=r"stage 2: seconds must be known for every sublot, got \[1\]"):
        Process(name="stage 2", seconds=seconds, sizes=(3, 7))


def test_a_time_that_no_sublot_needs_may_be_unknown():
    """Six samples by threes."""
    seconds = np.array([np.nan, np.nan, np.nan, 1.0, np.nan, np.nan, 2.0])
    assert Process(name="p", seconds=seconds, sizes=(3, 6)).sizes == (3, 6)


def test_a_line_has_processes_of_the_same_samples():
    processes = (affine("a", 0, 1, 3, (1,)), affine("b", 0, 1, 4, (1,)))
    with pytest.raises(BadInputError, match=r"numbers of samples must be the same for all processes, got \[3, 4\]"):
        ProcessChain(processes=processes)
    with pytest.raises(BadInputError, match="processes must be not empty"):
        ProcessChain(processes=())


def test_backwards_in_time_the_last_process_and_the_last_sample_come_first():
    chain = affine_chain([1, 2], [0, 0], 5)
    back = chain.reversed()
    assert [process.name for process in back.processes] == ["p1", "p0"]
    assert back.cuts(2).tolist() == [0, 1, 3, 5]
    assert back.reversed().cuts(2).tolist() == chain.cuts(2).tolist()


def test_a_line_with_releases_is_not_reversed():
    late = Process(name="late", seconds=np.ones(3), sizes=(1,), release_s=1.0)
    with pytest.raises(BadInputError, match="release_s must be zero"):
        ProcessChain(processes=(late,)).reversed()
