"""The plain recurrence, its matrix form, and ticks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.solvers.papers.umpipe.dual_genetic import one_by_one
from stagecut.planner.solvers.papers.umpipe.found import sizes_of
from stagecut.planner.solvers.papers.umpipe.matrix_genetic import IN_A_ROW, all_at_once
from stagecut.planner.solvers.papers.umpipe.ticks import HORIZON, in_ticks
from stagecut.planner.sublots.process_chain import ProcessChain
from stagecut.planner.sublots.staircases import makespan_s
from tests.unit.solvers.papers.umpipe.flush_lines import TOY, lines


def _with_releases(line, random):
    processes = tuple(replace(each, release_s=float(random.uniform(0, 20))) for each in line.processes)
    return ProcessChain(processes=processes)


def _population(line, random, count):
    num_options = np.array([len(process.sizes) for process in line.processes])
    return random.integers(num_options, size=(count, len(num_options)))


@given(line=lines(most_samples=20, most_processes=6), seed=st.integers(0, 2**32 - 1), released=st.booleans())
@settings(max_examples=60)
def test_the_plain_recurrence_is_the_makespan(line, seed, released):
    """In seconds, with the last sublot smaller and with release times."""
    random = np.random.default_rng(seed)
    line = _with_releases(line, random) if released else line
    population = _population(line, random, 3)
    expected = [makespan_s(line, sizes_of((line,), genes)[0]) for genes in population.tolist()]
    assert one_by_one(line)(population) == pytest.approx(expected)


@given(line=lines(most_samples=20, most_processes=6), seed=st.integers(0, 2**32 - 1), released=st.booleans())
@settings(max_examples=60)
def test_both_evaluations_give_the_same_bits(line, seed, released):
    """Populations of one to forty."""
    random = np.random.default_rng(seed)
    (line,) = in_ticks((_with_releases(line, random) if released else line,))
    population = _population(line, random, int(random.integers(1, 41)))
    assert one_by_one(line)(population).tolist() == all_at_once(line)(population).tolist()


def test_populations_of_several_rows_are_evaluated_whole():
    """The last time axis of a row ends below 2^63, also if the chromosome on it is the slowest one."""
    (line,) = in_ticks((TOY,))
    assert 2 * HORIZON * IN_A_ROW < 2**63
    population = np.tile([[0] * 7, [4] * 7], (IN_A_ROW + 1, 1))
    assert np.unique(all_at_once(line)(population)).tolist() == sorted(one_by_one(line)(population[:2]).tolist())


@given(line=lines())
def test_ticks_are_whole_and_end_within_the_horizon(line):
    """Rounding up every sublot adds at most half a tick each."""
    (ticking,) = in_ticks((line,))
    for process in ticking.processes:
        assert np.array_equal(process.seconds, np.rint(process.seconds), equal_nan=True)
    slowest = sum(max(makespan_s(ProcessChain(processes=(p,)), (x,)) for x in p.sizes) for p in ticking.processes)
    assert slowest <= HORIZON + line.num_samples * len(line.processes)


def test_ticks_are_the_same_for_all_lines():
    """A line alone has finer ones than beside another like it: 2 to 1."""
    alone, both = in_ticks((TOY,)), in_ticks((TOY, TOY.reversed()))
    assert both[0].processes[0].seconds == pytest.approx(alone[0].processes[0].seconds / 2, abs=1)


def test_lines_that_take_no_time_have_ticks_too():
    """All zero."""
    nothing = replace(TOY, processes=tuple(replace(each, seconds=np.zeros(17)) for each in TOY.processes))
    (line,) = in_ticks((nothing,))
    assert all_at_once(line)(np.zeros((1, 7), dtype=np.int64)).tolist() == [0.0]
