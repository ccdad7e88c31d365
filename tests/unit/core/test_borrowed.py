"""Loops that borrow their arrays find in them what others do, and count no users of their rows."""

from typing import NamedTuple

import numpy as np
import pytest
from numba import njit

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.numerics.borrowed import borrowed


class Lengths(NamedTuple):
    before: Floats
    after: Floats


class Sweep(NamedTuple):
    lengths: Lengths
    limit: float
    scale: Floats


@njit
def least(row):
    """Two ways to return, so that numba cannot see that its users balance."""
    for value in row:
        if value < 0.0:
            return value
    return row.min()


def total(sweep, more):
    found = 0.0
    for number in range(len(sweep.lengths.before)):
        found += least(sweep.lengths.before[number]) + least(sweep.lengths.after[number]) * sweep.scale[number]
        found += least(more[number])
    return found - sweep.limit


def total_of_borrowed(sweep, more):
    return njit_total(borrowed(sweep), borrowed(more))


njit_total = njit(inline="always")(total)
ROWS = np.arange(12.0).reshape(4, 3)
SWEEP = Sweep(Lengths(ROWS, ROWS - 5.0), 2.5, np.arange(4.0))


@pytest.mark.parametrize("loop", [total, total_of_borrowed])
def test_the_same_numbers_are_found(loop):
    assert njit(loop)(SWEEP, ROWS) == total(SWEEP, ROWS)


@pytest.mark.parametrize(("loop", "counts"), [(total, True), (total_of_borrowed, False)])
def test_users_of_borrowed_rows_are_not_counted(loop, counts):
    found = njit(loop)
    found(SWEEP, ROWS)
    (code,) = found.inspect_llvm().values()
    own = code.split("\ndefine ")[1]
    assert ("@NRT_incref" in own) == counts
