"""The entry: limits, the record of a search, equal parts, totals without rounding."""

import threading

import numpy as np
import pytest

from stagecut.planner.choice_graphs.exact.brute_force import try_all
from stagecut.planner.choice_graphs.exact.elimination import eliminate_all
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits, solve_program
from stagecut.planner.choice_graphs.solving.solve import solve
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.result import Status, StopCause
from stagecut.planner.solvers.search.options import SolveOptions
from tests.choice_graphs import choice_graph

FULL = [([0, 1], [6, 0]), ([0, 2], [6, 0]), ([0, 3], [6, 0])]
"""Within a limit of 12 one of these must change, and the first does it for 1."""


def ring(num_nodes, *, limit=10**6):
    """Neighbours that choose alike pay 10; an odd ring has one such pair."""
    nodes = [([0, 0], [1, 0], (0, 1))] * num_nodes
    return choice_graph(nodes, {(v, (v + 1) % num_nodes): [[10, 0], [0, 10]] for v in range(num_nodes)}, limit=limit)


def test_equal_parts_are_solved_once_and_all_count():
    nodes = [(*node, (when, when + 1)) for when in range(4) for node in FULL]
    points = []
    result = solve(choice_graph(nodes, limit=12), SolveOptions(gap=0.0), observer=points.append)
    assert (result.status, result.objective, result.bound) == (Status.OPTIMAL, 4, 4)
    assert result.choices == (1, 0, 0) * 4
    assert points == list(result.history)
    assert points[-1].objective == points[-1].bound == 4


def test_a_ring_is_eliminated():
    """An odd ring of 9 and an even one of 8, as one graph would be too large to be tried."""
    assert solve(ring(9), SolveOptions(gap=0.0)).objective == 10
    done, choices = eliminate_all(ring(8))
    assert done
    assert abs(np.diff(choices)).tolist() == [1] * 7


def test_elimination_leaves_limited_graphs_alone():
    assert eliminate_all(ring(4, limit=1)) == (False, None)


def test_brute_force_refuses_what_it_could_not_hold():
    with pytest.raises(BadInputError, match="at most"):
        try_all(ring(23))


def test_costs_beyond_doubles_are_told_apart():
    """10^16 + 1 is no double, and the limit leaves only that option or a dearer one."""
    nodes = [([0, 10**16 + 1, 10**16 + 2], [9, 0, 0], (0, 1)), ([0, 10**16 + 3], [9, 0], (0, 1))]
    result = solve(choice_graph(nodes, limit=10), SolveOptions())
    assert result.objective == 10**16 + 1
    assert result.bound <= result.objective


def test_small_costs_count_beside_very_large_ones():
    """Left to itself HiGHS takes 1 and 3 for the same beside 10^16; the best choice found rules that out."""
    nodes = [([10**16, 3, 1], [0, 4, 6], (0, 1)), ([10**16, 3, 1], [0, 4, 6], (0, 1))]
    proven = solve_program(choice_graph(nodes, limit=11), ProgramLimits())
    assert (proven.cost, proven.bound) == (4, 4)


def test_a_search_that_may_not_begin_ends_without_choice():
    cancelled = threading.Event()
    cancelled.set()
    result = solve(ring(5), SolveOptions(), cancelled=cancelled)
    assert (result.status, result.stopped_by) == (Status.INTERRUPTED, StopCause.USER)
    assert (result.choices, result.objective, result.gap) == (None, None, None)


def test_a_spent_time_limit_ends_the_search():
    result = solve(ring(5), SolveOptions(time_limit_s=5), spent_s=6)
    assert (result.status, result.stopped_by) == (Status.NO_PLAN, StopCause.TIME)


def test_an_empty_choice_costs_nothing():
    graph = choice_graph([([0], [0], (0, 0))])
    assert solve(graph, SolveOptions()).objective == 0
