"""Solvers whose bound would not hold for unequal micro-batches refuse jobs that allow them."""

from dataclasses import replace

import pytest

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.solvers.registry import PROVING, run
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions
from tests.catalogue import fast_and_slow


def unequal():
    problem = fast_and_slow()
    return replace(problem, job=replace(problem.job, unequal=True))


@pytest.mark.parametrize("solver", sorted(PROVING - {"milp"}))
def test_proving_solvers_of_equal_micro_batches_refuse(solver):
    with pytest.raises(UnsupportedError, match="does not support unequal micro-batches"):
        run(unequal(), solver, SolveOptions())


def test_the_shared_rows_are_refused():
    with pytest.raises(UnsupportedError, match="does not support unequal micro-batches"):
        run(unequal(), "milp", SolveOptions(rows=RowChoice.SHARED))
