"""The label program on cases known by hand, and on large ones."""

import numpy as np
import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.sublot_sizes import powers_of_two
from stagecut.planner.sublots.labels import SublotProblem, descend, near_equal, solve_sublots, undominated
from stagecut.planner.sublots.staircases import makespan_s
from tests.sublot_lines import affine_chain

TOY = affine_chain([4, 0.5, 1, 2, 6, 0.5, 1], [1, 0.5, 2, 0.2, 1, 0.5, 1], 16, (1, 2, 4, 8, 16))
"""Seven processes, 16 samples: four stages and the transfers between them."""


def test_the_toy_takes_longer_with_equal_sizes():
    """The best equal size is 4, with 69.8 s; the optimum is 69.4 s."""
    equal_s = {size: makespan_s(TOY, [size] * 7) for size in (1, 2, 4, 8, 16)}
    assert min(equal_s, key=equal_s.get) == 4
    assert equal_s[4] == pytest.approx(69.8)
    found = solve_sublots(SublotProblem.apart(TOY))
    assert found.makespan_s == pytest.approx(69.4)
    assert found.bound_s == pytest.approx(69.4)
    assert makespan_s(TOY, (4, 2, 2, 2, 4, 2, 2)) == pytest.approx(69.4)


def test_a_gap_is_the_part_that_a_better_choice_may_save():
    found = solve_sublots(SublotProblem.apart(TOY), gap=0.1)
    assert found.bound_s >= 0.9 * found.makespan_s * (1 - 1e-12)
    assert found.bound_s <= 69.4


def test_one_label_gives_a_bound_below_the_optimum():
    found = solve_sublots(SublotProblem.apart(TOY), max_labels=1)
    assert found.bound_s <= 69.4 <= found.makespan_s + 1e-9


def test_a_search_stopped_at_once_has_sizes_and_a_bound():
    found = solve_sublots(SublotProblem.apart(TOY), stop=lambda: True)
    assert 0 < found.bound_s <= 69.4 <= found.makespan_s + 1e-9
    assert len(found.sizes[0]) == 7


def test_descending_from_equal_sizes_is_never_worse():
    problem = SublotProblem.apart(TOY)
    start = near_equal(problem)
    assert problem.sizes_of(start) == ((4,) * 7,)
    assert problem.value_s(problem.sizes_of(descend(problem, start))) <= 69.8


def test_labels_that_are_nowhere_later_make_others_superfluous():
    """By rising bound: (1, 4), then (1, 4) again, (2, 4) later in one place, (2, 3) earlier in one."""
    labels = np.array([[2.0, 4.0], [1.0, 4.0], [2.0, 3.0], [1.0, 4.0]])
    bounds_s = np.array([7.0, 5.0, 6.0, 5.0])
    assert undominated(labels, bounds_s, 9).tolist() == [1, 2]
    assert undominated(labels, bounds_s, 1).tolist() == [1]


def test_coupled_backwards_are_unions():
    """Two stages, two samples: any forward takes 5 s, and backwards take 1 s a sample.

    Whole forwards, 10 s, leave only whole backwards, 4 s; apart these would take 3 s.
    """
    forward, backward = affine_chain([5, 5], [0, 0], 2), affine_chain([0, 0], [1, 1], 2, partial_first=True)
    found = solve_sublots(SublotProblem.coupled(forward, backward, {0, 1}))
    assert found.sizes == ((2, 2), (2, 2))
    assert found.makespan_s == 10 + 4
    assert solve_sublots(SublotProblem.coupled(forward, backward, ())).makespan_s == 10 + 3


def test_a_process_without_sizes_that_go_together_is_named():
    forward, backward = affine_chain([0], [2], 4, (3,)), affine_chain([1], [1], 4, (2,), partial_first=True)
    with pytest.raises(BadInputError, match="p0: sizes must be such that some backward is a union of its forwards"):
        SublotProblem.coupled(forward, backward, {0})
    assert solve_sublots(SublotProblem.coupled(forward, backward, ())).sizes == ((3,), (2,))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("num_samples", "num_processes", "sizes"), [(256, 31, powers_of_two(256)), (64, 15, None)])
def test_large_lines_are_solved_to_the_optimum(seed, num_samples, num_processes, sizes):
    """All 64 sizes in the second case; with no more labels than by default."""
    draws = np.random.default_rng(seed)
    stages = np.arange(num_processes) % 2 == 0
    per_sample_s = np.where(stages, draws.uniform(0.5, 1.5, num_processes), draws.uniform(0.05, 1, num_processes))
    chain = affine_chain(draws.uniform(0, 4, num_processes), per_sample_s, num_samples, sizes)
    problem = SublotProblem.apart(chain)
    found = solve_sublots(problem)
    assert found.bound_s == pytest.approx(found.makespan_s, rel=1e-9)
    assert found.makespan_s <= problem.value_s(problem.sizes_of(near_equal(problem)))
