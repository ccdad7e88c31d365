"""The search over partition, mapping and sublot sizes, on cases derived by hand."""

import pytest

from stagecut.planner.core.result import Status
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.unequal_problems import two_kinds

EXACT = SolveOptions(gap=0.0)


def test_setups_on_one_stage_only_ask_for_pairs():
    """See `two_kinds`: 18 s forwards and 36 s backwards."""
    result = run(two_kinds(), "milp", EXACT)
    assert (result.status, result.objective_s) == (Status.OPTIMAL, pytest.approx(54.0))
    assert result.bound_s == pytest.approx(54.0)


def test_unequal_sizes_are_never_slower_than_equal_ones():
    """Of 6 samples: the sizes that divide 6 are in the space, and so is every mixture."""
    equal = run(two_kinds(batch=6, micro_batches=(1, 2, 3), unequal=False), "milp", EXACT)
    unequal = run(two_kinds(batch=6, micro_batches=(1, 2, 3)), "milp", EXACT)
    assert unequal.objective_s <= equal.objective_s


def test_a_last_sublot_may_be_smaller():
    """Of 3 samples no pair divides: [0, 2), [2, 3) end at 6 and 11 on the first stage, at 12 and 15 on the second.

    Sizes (4) hold more than there are, and (1, 1) end at 18. Backwards: the second stage ends samples at 6, 12, 18; the
    first takes 12 s for a pair from 12 and 10 s for the last sample, from 24 to 34. 15 + 34 = 49 s.
    """
    result = run(two_kinds(batch=3), "milp", EXACT)
    assert result.objective_s == pytest.approx(49.0)
    sizes = [(stage.forward_micro_batch, stage.backward_micro_batch) for stage in result.plan.stages]
    assert sizes[0] == (2, 2)


def test_memory_limits_the_largest_sublot():
    """A stage saves a byte per sample, 4 in all, and works on a byte per sample: 5 bytes leave single samples.

    Forwards of single samples end at 5, 10, 15, 20 on the first stage and at 23 on the second; backwards leave the
    second at 6, 12, 18, 24 and the first, 10 s each, at 16, 26, 36, 46: 69 s.
    """
    result = run(two_kinds(memory_bytes=5.0), "milp", EXACT)
    assert result.objective_s == pytest.approx(69.0)
    assert {stage.forward_micro_batch for stage in result.plan.stages} == {1}
