"""The oracle for sublot sizes, on cases small enough for paper."""

import pytest

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.solvers.reference.sublot_brute_force import (
    all_makespans,
    are_unions,
    best_apart,
    best_coupled,
    played_s,
    sublots,
)
from tests.sublot_lines import affine_chain


def test_five_samples_by_twos_end_in_a_single_one_or_begin_with_it():
    ends = [list(part) for part in sublots(affine_chain([0], [1], 5), 2)]
    assert ends == [[0, 1], [2, 3], [4]]
    begins = [list(part) for part in sublots(affine_chain([0], [1], 5, partial_first=True), 2)]
    assert begins == [[0], [1, 2], [3, 4]]


def test_two_processes_are_played_sublot_by_sublot():
    """Five samples by twos of 1 + x s: 3, 6, 8; then by threes of x s: from 6 to 9, and to 11."""
    assert played_s(affine_chain([1, 0], [1, 1], 5), (2, 3)) == 11


def test_every_choice_is_tried_once():
    chain = affine_chain([1, 0], [1, 1], 3)
    assert sorted(sizes for sizes, _ in all_makespans(chain)) == [(x, y) for x in (1, 2, 3) for y in (1, 2, 3)]


def test_of_equal_choices_the_smallest_is_named():
    """One process without setups."""
    best = best_apart(affine_chain([0], [1], 3))
    assert (best.sizes, best.makespan_s, best.bound_s) == (((1,),), 3, 3)


def test_backwards_of_three_cut_a_forward_of_two():
    """Seven samples: the backward ends at 3, 6 and 7, counted from the front."""
    forward, backward = affine_chain([0], [1], 7), affine_chain([0], [1], 7, partial_first=True)
    assert not are_unions(forward, (2,), backward, (3,), {0})
    assert are_unions(forward, (2,), backward, (3,), ())
    assert are_unions(forward, (2,), backward, (4,), {0})
    assert are_unions(forward, (2,), backward, (7,), {0})


def test_coupling_can_cost():
    """Two stages, two samples: any forward takes 5 s, so they are whole, and backwards take 1 s a sample.

    Apart, backwards of single samples take 3 s; whole ones, the only unions of whole forwards, take 4 s.
    """
    forward, backward = affine_chain([5, 5], [0, 0], 2), affine_chain([0, 0], [1, 1], 2, partial_first=True)
    assert best_coupled(forward, backward, ()).sizes == ((2, 2), (1, 1))
    assert best_coupled(forward, backward, ()).makespan_s == 10 + 3
    assert best_coupled(forward, backward, {0, 1}).makespan_s == 10 + 4


def test_too_many_choices_are_refused():
    """20 processes with 2 sizes: a million."""
    chain = affine_chain([1] * 20, [1] * 20, 2)
    with pytest.raises(UnsupportedError, match="1048576 choices, more than 200000"):
        best_apart(chain)
