"""The mixed-integer program over sublot sizes, family by family."""

import numpy as np
import pytest

from stagecut.planner.solvers.sublots.program import (
    SublotSizes,
    arrival,
    one_size,
    order,
    release,
    solve_program,
    sublot_program,
    unions,
)
from stagecut.planner.sublots.process_chain import Process, ProcessChain
from tests.sublot_lines import affine_chain

CHAIN = affine_chain([1, 0], [1, 1], 3, (1, 3))
"""Columns 0 and 1: sizes of the first process, 2 and 3: of the second, 4 to 6 and 7 to 9: samples leave them."""
SETS = SublotSizes(lines=(CHAIN,))


def terms(rows):
    """With times in seconds."""
    return [{column: round(value * SETS.horizon_s, 9) for column, value in row.terms.items()} for row in rows]


def test_the_horizon_is_that_of_processes_one_after_another():
    """All at once on the first, 4 s; 3 s on the second."""
    assert SETS.horizon_s == 7


def test_every_process_has_one_size():
    rows = list(one_size(SETS))
    assert [set(row.terms) for row in rows] == [{0, 1}, {2, 3}]
    assert all(row.equal and row.lower == 1 for row in rows)


def test_the_first_sample_leaves_after_its_sublot():
    """2 s alone or 4 s with all others; 1 or 3 s on the second process."""
    assert terms(release(SETS)) == [{4: 7, 0: -2, 1: -4}, {7: 7, 2: -1, 3: -3}]


def test_sublots_pass_one_after_another():
    """Only single samples begin a sublot at the second and the third sample."""
    assert terms(order(SETS))[:2] == [{5: 7, 4: -7, 0: -2}, {6: 7, 5: -7, 0: -2}]


def test_sublots_wait_for_all_their_samples():
    """Sample 1 waits for itself, whatever the size, and for sample 3 where all go at once: 7 is the horizon."""
    rows = terms(arrival(SETS))
    assert rows[:2] == [{7: 7, 4: -7, 2: -1, 3: -3}, {7: 7, 6: -7, 2: 7, 3: -3}]
    assert len(rows) == 2 + 2 + 1


def test_backwards_are_unions():
    """Three samples: a forward of 1 goes with 1 and 3, a forward of 3 with 3 only."""
    sets = SublotSizes(lines=(affine_chain([0], [1], 3, (1, 3)), affine_chain([0], [1], 3, (1, 3))), coupled={0})
    assert [dict(row.terms) for row in unions(sets)] == [{0: -1, 2: 1, 3: 1}, {1: -1, 3: 1}]
    assert sublot_program(sets).num_integer == 4


def test_a_program_finds_and_proves_the_optimum():
    """Six samples, sizes 2 and 5, T = 3 + x, x, x: 16 s at (5, 2, 2)."""
    found = solve_program(SublotSizes(lines=(affine_chain([3, 0, 0], [1, 1, 1], 6, (2, 5)),)), time_limit_s=60.0)
    assert (found.sizes, found.makespan_s) == (((5, 2, 2),), 16)
    assert found.bound_s == pytest.approx(16, rel=1e-6)


def test_sublots_beyond_the_horizon_are_never_chosen():
    """A single sample takes 1 s where both together take next to nothing."""
    process = Process(name="p", seconds=np.array([0, 1, 1e-191]), sizes=(1, 2))
    found = solve_program(SublotSizes(lines=(ProcessChain(processes=(process,)),)), time_limit_s=60.0)
    assert (found.sizes, found.makespan_s) == (((2,),), 1e-191)


def test_no_time_gives_no_sizes():
    assert solve_program(SETS, time_limit_s=0.0, stop=lambda: True) is None
