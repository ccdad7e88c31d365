"""What docs/sublots.md says about optimal sizes, tried on random lines against brute force."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.sublot_sizes import is_union, powers_of_two
from stagecut.planner.solvers.reference.sublot_brute_force import all_makespans, best_apart
from stagecut.planner.solvers.sublots.consistent import consistent_sublots
from stagecut.planner.sublots.process_chain import Process, ProcessChain
from stagecut.planner.sublots.staircases import makespan_s
from tests.sublot_lines import affine_chain, lines

SOME_S = st.floats(0.01, 6.0)
SETUPS_S = st.one_of(st.just(0.0), st.integers(0, 12).map(float), SOME_S)


@st.composite
def affine_lines(draw, *, processes, setups=SETUPS_S, max_samples=6, sizes=None):
    """Lines with T(x) = a + c x and the same sizes for every process; all sizes if none are named."""
    num_processes, num_samples = draw(processes), draw(st.integers(2, max_samples))
    setups_s, per_sample_s = (
        draw(st.lists(times, min_size=num_processes, max_size=num_processes)) for times in (setups, SOME_S)
    )
    return affine_chain(setups_s, per_sample_s, num_samples, sizes and draw(sizes(num_samples)))


def some_sizes(num_samples):
    return st.sets(st.integers(1, num_samples), min_size=1, max_size=4).map(sorted)


def least_s(chain, allowed):
    """The least makespan of the choices of sizes that are allowed."""
    return min(seconds for sizes, seconds in all_makespans(chain) if allowed(sizes))


def same(seconds):
    return pytest.approx(seconds, rel=1e-9, abs=1e-9)


def nests(chain, sizes):
    """Sublots of the first and of the last process are unions of those of their neighbours."""
    return is_union(chain.num_samples, sizes[1], sizes[0]) and is_union(chain.num_samples, sizes[-2], sizes[-1])


@settings(max_examples=35)
@given(lines(releases=False), st.data())
def test_a_staircase_is_a_product_of_max_plus_matrices(chain, data):
    """M[n, k] is the time of the sublots from that of k to that of n, if k is in no later one than n."""
    staircase = np.zeros(chain.num_samples)
    sizes = [data.draw(st.sampled_from(process.sizes)) for process in chain.processes]
    for process, size in zip(chain.processes, sizes, strict=True):
        lengths = np.diff(chain.cuts(size))
        of_sample = np.repeat(np.arange(len(lengths)), lengths)
        ends_s = np.cumsum(process.seconds[lengths])
        begins_s = ends_s - process.seconds[lengths]
        matrix = ends_s[of_sample][:, None] - begins_s[of_sample][None, :]
        matrix[of_sample[:, None] < of_sample[None, :]] = -np.inf
        staircase = (matrix + staircase[None, :]).max(axis=1)
    assert staircase[-1] == same(makespan_s(chain, sizes))


@settings(max_examples=35)
@given(st.lists(SOME_S, min_size=1, max_size=3), st.data())
def test_where_no_sublot_is_cheaper_than_its_samples_single_ones_are_best(per_sample_s, data):
    """T(x) >= x T(1): sum of T(1) + (N - 1) max T(1)."""
    num_samples = data.draw(st.integers(1, 6))
    samples = np.arange(num_samples + 1.0)
    extra = st.lists(st.floats(0.0, 2.0), min_size=num_samples, max_size=num_samples)
    # Nothing extra for 0 samples and for one.
    tables = [c * (samples + np.append([0.0, 0.0], data.draw(extra)[1:])) for c in per_sample_s]
    processes = (
        Process(name=f"p{i}", seconds=table, sizes=tuple(range(1, num_samples + 1))) for i, table in enumerate(tables)
    )
    chain = ProcessChain(processes=tuple(processes), partial_first=data.draw(st.booleans()))
    expected_s = sum(per_sample_s) + (num_samples - 1) * max(per_sample_s)
    assert best_apart(chain).makespan_s == same(expected_s)
    assert makespan_s(chain, [1] * len(per_sample_s)) == same(expected_s)


@settings(max_examples=50)
@given(affine_lines(processes=st.integers(3, 4), setups=st.just(0.0), sizes=some_sizes, max_samples=8))
def test_without_setups_equal_sizes_at_either_end_are_best(chain):
    """Of processes 1 and 2, and of the last two."""
    best_s = least_s(chain, lambda sizes: sizes[0] == sizes[1] and sizes[-2] == sizes[-1])
    assert best_s == same(best_apart(chain).makespan_s)


@settings(max_examples=50)
@given(affine_lines(processes=st.integers(2, 4), sizes=some_sizes, max_samples=9))
def test_with_setups_the_first_and_the_last_process_have_the_larger_sizes(chain):
    """x_1 >= x_2 and x_m >= x_m-1 in some optimum."""
    best_s = least_s(chain, lambda sizes: sizes[0] >= sizes[1] and sizes[-1] >= sizes[-2])
    assert best_s == same(best_apart(chain).makespan_s)


@settings(max_examples=35)
@given(affine_lines(processes=st.just(2), sizes=some_sizes, max_samples=9))
def test_on_two_processes_equal_sizes_are_best(chain):
    best_s = min(makespan_s(chain, [size] * 2) for size in chain.processes[0].sizes)
    assert best_s == same(best_apart(chain).makespan_s)


@settings(max_examples=35)
@given(affine_lines(processes=st.integers(2, 4), sizes=lambda n: st.just(powers_of_two(n)), max_samples=12))
def test_sizes_that_divide_one_another_nest_at_both_ends(chain):
    best_s = least_s(chain, lambda sizes: nests(chain, sizes))
    assert best_s == same(best_apart(chain).makespan_s)


def test_ends_need_not_nest_even_where_all_sizes_are_allowed():
    """Ten samples, T = 2 + 4 x, 1 + 2 x, 3 + 2 x; with sizes 3, 2 and 2:

    the first process ends at 14, 28, 42 and 48, the second one at 14 + 5, 28 + 5, + 5, 42 + 5 and 48 + 5, the third
    at 19 + 7, 33 + 7, + 7, + 7 and + 7. Brute force gives 62 for all sizes that nest.
    """
    chain = affine_chain([2, 1, 3], [4, 2, 2], 10)
    assert makespan_s(chain, (3, 2, 2)) == 33 + 4 * 7
    assert best_apart(chain).makespan_s == 61
    assert least_s(chain, lambda sizes: is_union(10, sizes[1], sizes[0])) == 62


def test_ends_need_not_nest_where_few_sizes_are_allowed():
    """Six samples, sizes 2 and 5, T = 3 + x, x, x.

    (5, 2, 2): the first process ends 5 samples at 8, the sixth at 12; the second one takes 2 each at 8, 10 and 12,
    the third at 10, 12 and 14: 16. (2, 2, 2): 5, 10, 15, then 2 + 2: 19. (5, 5, 5): 8, 12; 13, 14; 18, 19.
    """
    chain = affine_chain([3, 0, 0], [1, 1, 1], 6, sizes=(2, 5))
    best = best_apart(chain)
    assert (best.sizes, best.makespan_s) == (((5, 2, 2),), 16)
    assert makespan_s(chain, (2, 2, 2)) == makespan_s(chain, (5, 5, 5)) == 19
    assert least_s(chain, lambda sizes: nests(chain, sizes)) == 19


@settings(max_examples=15)
@given(SOME_S, SOME_S, st.integers(1, 6), st.integers(1, 20))
def test_sublots_of_two_processes_without_setups_are_geometric(first_s, second_s, num_sublots, num_samples):
    """u_j+1 = q u_j with q = c_2 / c_1, and c_2 N + c_1 N / (1 + q + .. + q^(J-1)) seconds."""
    found = consistent_sublots([0.0, 0.0], [first_s, second_s], num_samples=num_samples, num_sublots=num_sublots)
    powers = (second_s / first_s) ** np.arange(num_sublots)
    expected_s = num_samples * (second_s + first_s / powers.sum())
    assert found.makespan_s == pytest.approx(expected_s, rel=1e-6)
    assume(0.1 < second_s / first_s < 10)
    np.testing.assert_allclose(found.lengths, num_samples * powers / powers.sum(), atol=1e-3 * num_samples)


def test_consistent_sublots_can_be_worse_than_a_size_for_each_process():
    """Four samples, T = x, x and 10: sizes 1, 1 and 4 end at 4 + 1 + 10.

    One sublot for all takes 4 + 4 + 10; two take 20 on the third process alone, which begins no sooner than with 0.
    """
    sizes = best_apart(affine_chain([0, 0, 10], [1, 1, 0], 4))
    assert (sizes.sizes, sizes.makespan_s) == (((1, 1, 4),), 15)
    by_number = [least_consistent_s([0, 0, 10], [1, 1, 0], 4, num_sublots) for num_sublots in (1, 2, 3, 4)]
    assert by_number == pytest.approx([18, 20, 30, 40], rel=1e-6)


def test_consistent_sublots_of_unlike_lengths_can_be_better():
    """Three samples, T = x and 1 + x: lengths 1 and 2 end at 1 + 2 + 3 = 6.

    With one size for each process the second one begins at 1 with three setups, at 2 with two, or at 3: 7.
    """
    assert best_apart(affine_chain([0, 1], [1, 1], 3)).makespan_s == 7
    assert least_consistent_s([0, 1], [1, 1], 3, 2) == pytest.approx(6, rel=1e-6)


def least_consistent_s(setups_s, per_sample_s, num_samples, num_sublots):
    found = consistent_sublots(setups_s, per_sample_s, num_samples=num_samples, num_sublots=num_sublots)
    assert found.lengths.sum() == pytest.approx(num_samples, rel=1e-6)
    return found.makespan_s
