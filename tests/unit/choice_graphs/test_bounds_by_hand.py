"""Bounds of choice graphs, on graphs small enough to add up by hand."""

import numpy as np

from stagecut.planner.choice_graphs.bounds.lower_bound import lower_bound
from stagecut.planner.choice_graphs.bounds.mixing import mixture
from stagecut.planner.choice_graphs.bounds.relaxation import Relaxation
from tests.choice_graphs import NO, choice_graph

ALWAYS = (0, 9)


def free(*costs):
    """A node that uses nothing."""
    return (list(costs), [0] * len(costs), ALWAYS)


def test_multipliers_reach_the_price_of_usage():
    """Saving the 2 units over the limit costs 3 a unit in the first node and 5 in the second: 2 of 4 units for 6.

    The relaxation may take half of the first node's saving of 4 for 12.
    """
    nodes = [([0, 12], [4, 0], ALWAYS), ([0, 20], [4, 0], ALWAYS)]
    bound = lower_bound(choice_graph(nodes, limit=6))
    assert bound.value == 6
    assert bound.time.tolist() == [0]
    assert np.allclose(bound.multiplier, 3, atol=1e-2)


def test_a_price_counts_the_moments_at_which_a_node_is_alive():
    """Nodes 1 and 2 follow each other beside node 0, which pays for both moments."""
    nodes = [([0, 9], [5, 0], (0, 4)), ([0, 4], [5, 0], (0, 2)), ([0, 4], [5, 0], (2, 4))]
    graph = choice_graph(nodes, limit=9)
    bound = lower_bound(graph)
    price = bound.price(graph)
    assert price[0] == price[1] + price[2]
    assert len(bound.time) == 2


def test_a_known_cost_ends_the_bound():
    """Without the limit the first options are best, at 1 + 2."""
    graph = choice_graph([free(1, 5), free(2, 7)])
    assert [lower_bound(graph, upper=upper).value for upper in (2, 3, 4)] == [2, 3, 3]


def test_no_legal_choice_is_told():
    assert lower_bound(choice_graph([free(0, 0), free(0, 0)], {(0, 1): [[NO, NO], [NO, NO]]})) is None
    assert lower_bound(choice_graph([([0], [4], ALWAYS), ([0], [3], ALWAYS)], limit=6)) is None


def test_progress_rises_and_a_stop_is_obeyed():
    rng = np.random.default_rng(1)
    nodes = [(rng.integers(0, 99, 4).tolist(), rng.integers(0, 99, 4).tolist(), ALWAYS) for _ in range(8)]
    edges = {(u, v): rng.integers(0, 99, (4, 4)) for u in range(8) for v in range(u)}
    seen = []
    points = iter(range(15))
    bound = lower_bound(
        choice_graph(nodes, edges, limit=250),
        stop=lambda: next(points, None) is None,
        on_progress=lambda better: seen.append(better.value),
    )
    assert seen == sorted(set(seen))
    assert seen[-1] == bound.value
    assert next(points, None) is None


def test_leaves_and_nodes_that_follow_leave_no_core():
    """Nodes 0, 1, 2 in a ring follow each other; node 3 hangs on it."""
    same = [[0, NO], [NO, 0]]
    graph = choice_graph(
        [free(1, 2), free(3, 0), free(0, 0), free(0, 5)],
        {(0, 1): same, (1, 2): same, (0, 2): same, (2, 3): [[4, 0], [1, 0]]},
    )
    relaxation = Relaxation.of(graph, dearest=10**6, scale_bits=0)
    assert len(relaxation.core_node) == 0
    # options 1: 2 + 0 + 0 with node 3's option 0 for 1; options 0: 1 + 3 and 4 more at least
    assert lower_bound(graph).value == 3


def test_costs_beyond_doubles_are_bounded_within_their_rounding():
    """Costs of 10^17 - 1 in all need a unit of 2^11, so each may lose that much."""
    graph = choice_graph([free(10**16, 10**16 + 1)] * 9)
    assert 9 * 10**16 - 9 * 2**11 <= lower_bound(graph).value <= 9 * 10**16


def test_the_best_mixture_of_two_opposite_tangents_is_where_they_cross():
    """Slopes 1 and -3 with errors 0 and 2 cross at d = 1/2: weights 3/4 and 1/4, as the step is long."""
    slopes, errors, center = np.array([[1.0], [-3.0]]), np.array([0.0, 2.0]), np.array([10.0])
    weights = mixture(slopes, errors, center, 1e6, np.array([1.0, 0.0]), 300)
    assert np.allclose(weights, [0.75, 0.25], atol=1e-5)
