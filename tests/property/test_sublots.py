"""Labels, mixed-integer program and brute force agree on the sizes of sublots, and their optimum obeys its laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.solvers.reference.sublot_brute_force import (
    all_makespans,
    are_unions,
    best_apart,
    best_coupled,
    played_s,
)
from stagecut.planner.solvers.sublots.program import SublotSizes, solve_program
from stagecut.planner.sublots.labels import SublotProblem, solve_sublots
from stagecut.planner.sublots.staircases import arrivals, completions, makespan_s, remaining
from tests.sublot_lines import coupled_lines, lines, map_processes

ROUNDING = 1e-9
BY_HIGHS = 1e-6


def same(seconds, tolerance=ROUNDING):
    return pytest.approx(seconds, rel=tolerance, abs=tolerance)


def optimum_s(chain):
    return best_apart(chain).makespan_s


def check_sizes(problem, choice, best_s):
    """The sizes are allowed, take what is said, and that is the optimum, proven."""
    assert choice.makespan_s == same(best_s)
    assert choice.bound_s <= best_s * (1 + ROUNDING)
    assert choice.bound_s >= best_s * (1 - ROUNDING)
    played = sum(played_s(line, sizes) for line, sizes in zip(problem.lines, choice.sizes, strict=True))
    assert played == same(choice.makespan_s)


@settings(max_examples=120)
@given(lines())
def test_labels_find_the_optimum_of_brute_force(chain):
    problem = SublotProblem.apart(chain)
    check_sizes(problem, solve_sublots(problem), optimum_s(chain))


@settings(max_examples=120)
@given(coupled_lines())
def test_coupled_labels_find_the_optimum_of_brute_force(problem):
    forward, backward, computations = problem
    stated = SublotProblem.coupled(*problem)
    choice = solve_sublots(stated)
    check_sizes(stated, choice, best_coupled(*problem).makespan_s)
    assert are_unions(forward, choice.sizes[0], backward, choice.sizes[1], computations)


@settings(max_examples=35)
@given(lines(max_samples=6))
def test_the_program_finds_the_optimum_of_brute_force(chain):
    found = solve_program(SublotSizes(lines=(chain,)), time_limit_s=60.0)
    best_s = optimum_s(chain)
    assert found.makespan_s == same(best_s, BY_HIGHS)
    assert found.bound_s == same(best_s, BY_HIGHS)


@settings(max_examples=25)
@given(coupled_lines(max_samples=5))
def test_the_coupled_program_finds_the_optimum_of_brute_force(problem):
    forward, backward, computations = problem
    found = solve_program(SublotSizes(lines=(forward, backward), coupled=computations), time_limit_s=60.0)
    best_s = best_coupled(*problem).makespan_s
    assert found.makespan_s == same(best_s, BY_HIGHS)
    assert found.bound_s == same(best_s, BY_HIGHS)
    assert are_unions(forward, found.sizes[0], backward, found.sizes[1], computations)


@settings(max_examples=60)
@given(lines(), st.integers(1, 3), st.sampled_from((0.0, 0.05, 0.5)))
def test_labels_that_were_capped_still_give_a_bound(chain, max_labels, gap):
    best_s, choice = optimum_s(chain), solve_sublots(SublotProblem.apart(chain), max_labels=max_labels, gap=gap)
    assert choice.bound_s <= best_s * (1 + ROUNDING)
    assert choice.makespan_s >= best_s * (1 - ROUNDING)
    assert played_s(chain, choice.sizes[0]) == same(choice.makespan_s)


@settings(max_examples=60)
@given(coupled_lines(), st.integers(1, 3))
def test_coupled_labels_that_were_capped_still_give_a_bound(problem, max_labels):
    best_s = best_coupled(*problem).makespan_s
    choice = solve_sublots(SublotProblem.coupled(*problem), max_labels=max_labels)
    assert choice.bound_s <= best_s * (1 + ROUNDING)
    assert choice.makespan_s >= best_s * (1 - ROUNDING)


@settings(max_examples=30)
@given(lines(), st.integers(0, 5))
def test_a_search_that_is_stopped_gives_a_bound(chain, moves):
    """After so many moves."""
    asked = iter(range(100))
    best_s = optimum_s(chain)
    choice = solve_sublots(SublotProblem.apart(chain), stop=lambda: next(asked) >= moves)
    assert choice.bound_s <= best_s * (1 + ROUNDING)
    assert choice.makespan_s >= best_s * (1 - ROUNDING)


@settings(max_examples=60)
@given(lines())
def test_staircases_are_those_of_sublots_played_one_by_one(chain):
    """For every choice of sizes."""
    for sizes, seconds in all_makespans(chain):
        assert makespan_s(chain, sizes) == same(seconds)


@settings(max_examples=60)
@given(lines(releases=False))
def test_backwards_in_time_the_same_sizes_take_as_long(chain):
    back = chain.reversed()
    for sizes, seconds in all_makespans(chain):
        assert played_s(back, sizes[::-1]) == same(seconds)
    assert [each.name for each in back.reversed().processes] == [each.name for each in chain.processes]


@settings(max_examples=60)
@given(lines(releases=False), st.data())
def test_the_makespan_is_the_longest_way_through_any_process(chain, data):
    """The largest C_i[n] + q_i+1[n] over the samples, at every i, q_i by the recursion from the end."""
    sizes = [data.draw(st.sampled_from(process.sizes)) for process in chain.processes]
    ways = [np.zeros(chain.num_samples)]
    for index in reversed(range(len(sizes))):
        ways.append(remaining(chain, index, sizes[index], ways[-1]))
    staircase = arrivals(chain)
    for index, size in enumerate(sizes):
        assert (staircase[0] + ways[len(sizes) - index]).max() == same(played_s(chain, sizes))
        staircase = completions(chain, index, size, staircase)


@settings(max_examples=50)
@given(lines(), st.sampled_from((1e-3, 0.3, 7.0, 1e4)))
def test_the_optimum_scales_with_all_times(chain, factor):
    scaled = map_processes(
        chain, lambda _, each: replace(each, seconds=factor * each.seconds, release_s=factor * each.release_s)
    )
    found = solve_sublots(SublotProblem.apart(scaled))
    assert found.makespan_s == pytest.approx(factor * optimum_s(chain), rel=ROUNDING, abs=1e-12)


@settings(max_examples=50)
@given(lines(), st.data())
def test_more_sizes_never_hurt(chain, data):
    more = data.draw(st.sets(st.integers(1, chain.num_samples)))
    wider = map_processes(chain, lambda _, each: replace(each, sizes=tuple(sorted({*each.sizes, *more}))))
    assert solve_sublots(SublotProblem.apart(wider)).makespan_s <= optimum_s(chain) * (1 + ROUNDING)


@settings(max_examples=50)
@given(lines(), st.data())
def test_a_slower_process_never_helps(chain, data):
    slow = data.draw(st.integers(0, len(chain.processes) - 1))
    extra_s = data.draw(st.lists(st.floats(0.0, 3.0), min_size=chain.num_samples, max_size=chain.num_samples))
    slower = map_processes(
        chain,
        lambda index, each: replace(each, seconds=each.seconds + np.append(0.0, extra_s)) if index == slow else each,
    )
    assert solve_sublots(SublotProblem.apart(slower)).makespan_s >= optimum_s(chain) * (1 - ROUNDING)


@settings(max_examples=50)
@given(coupled_lines())
def test_coupling_never_helps_and_equal_sizes_are_never_better(problem):
    """Apart in both directions is a bound; so is coupled to one size for all, where all have it."""
    forward, backward, _ = problem
    coupled = SublotProblem.coupled(*problem)
    found = solve_sublots(coupled)
    apart_s = optimum_s(forward) + optimum_s(backward)
    assert found.makespan_s >= apart_s * (1 - ROUNDING)
    shared = set.intersection(*(set(each.sizes) for line in coupled.lines for each in line.processes))
    for size in shared:
        equal_s = sum(played_s(line, [size] * len(line.processes)) for line in coupled.lines)
        assert found.makespan_s <= equal_s * (1 + ROUNDING)
