"""Cost, peak and faults of a choice, added up by hand."""

import numpy as np
import pytest

from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.moments import find_moments
from tests.choice_graphs import NO, choice_graph


@pytest.fixture
def graph():
    nodes = [([1, 2], [3, 4], (0, 5)), ([5, 0, NO], [1, 2, 1], (2, 7)), ([0], [9], (1, 1))]
    return choice_graph(nodes, {(0, 1): [[1, 2, 3], [NO, 70, 0]]}, limit=5)


def test_costs_of_options_and_pairs_add_up(graph):
    """2 + 0 + 0 and 70; at moment 2 both are alive, with 4 + 2 over the limit of 5; node 2 never is."""
    found = evaluate(graph, [1, 1, 0])
    assert (found.cost, found.peak_usage, found.moment) == (72, 6, 2)
    assert found.faults == ("moment 2: usage 6 is 1 over the limit of 5",)


def test_impossible_options_and_pairs_are_told(graph):
    assert evaluate(graph, [1, 0, 0]).faults == ("edge 0: options 1 and 0 of nodes 0 and 1 exclude each other",)
    assert evaluate(graph, [0, 2, 0]).faults == ("node 1: option 2 is impossible",)


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ([0, 0], "choices: 2 for 3 nodes"),
        ([0, 3, 0], "node 1: no option 3; it has 0 to 2"),
        ([0, -1, 0], "no option -1"),
    ],
)
def test_choices_that_are_none_are_told(graph, choices, told):
    assert told in evaluate(graph, choices).faults[0]


def test_totals_beyond_doubles_are_exact():
    """2^53 + 1 is no double: 9 nodes of 10^16 + 1 each."""
    graph = choice_graph([([10**16 + 1], [0], (0, 1))] * 9)
    assert evaluate(graph, [0] * 9).cost == 9 * 10**16 + 9


def test_a_stop_is_before_a_start_at_the_same_moment():
    graph = choice_graph([([0], [3], (0, 2)), ([0], [4], (2, 3))], limit=4)
    assert evaluate(graph, [0, 0]).faults == ()


def test_moments_that_cannot_overflow_are_left_out():
    """Largest usages: 4 at 0, 4 + 5 at 1, 5 + 1 at 4; the limit is 6. Least: 1 + 2, so the room is 3."""
    nodes = [([0, 0], [1, 4], (0, 3)), ([0, 0], [2, 5], (1, 6)), ([0], [1], (4, 6))]
    moments = find_moments(choice_graph(nodes, limit=6))
    assert (moments.time.tolist(), moments.room.tolist()) == ([1], [3])
    first, member = moments.members()
    assert member[first[0] : first[1]].tolist() == [0, 1]


def test_a_moment_implied_by_the_next_is_left_out():
    """At 0 node 0 is alive, at 1 also node 1, at 2 also node 2: moment 2 implies the others."""
    nodes = [([0, 0], [0, 9], (start, 5)) for start in (0, 1, 2)]
    moments = find_moments(choice_graph(nodes, limit=8))
    assert moments.time.tolist() == [2]
    assert np.array_equal(moments.end - moments.begin, [1, 1, 1])


def test_a_moment_with_less_room_is_not_implied_by_more_members():
    """A node that uses 6 with its only option leaves at 1, before node 1 comes: room 8 - 6 at 0, and 8 at 1."""
    nodes = [([0, 0], [0, 9], (0, 5)), ([0], [6], (0, 1)), ([0, 0], [0, 9], (1, 5))]
    moments = find_moments(choice_graph(nodes, limit=8))
    assert (moments.time.tolist(), moments.room.tolist()) == ([0, 1], [2, 8])


def test_usage_that_is_the_same_with_every_option_takes_room_only():
    nodes = [([0, 0], [5, 5], (0, 2)), ([0, 0], [1, 4], (0, 2))]
    moments = find_moments(choice_graph(nodes, limit=8))
    assert moments.room.tolist() == [2]
    assert (moments.end - moments.begin).tolist() == [0, 1]
