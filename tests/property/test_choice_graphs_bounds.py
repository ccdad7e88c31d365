"""Bounds of choice graphs never exceed the optimum, and reach it where the relaxation is exact."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.choice_graphs.bounds.dual import Dual
from stagecut.planner.choice_graphs.bounds.lower_bound import lower_bound
from stagecut.planner.choice_graphs.bounds.relaxation import Relaxation
from tests.choice_graphs import choice_graph, optimum, small_graphs


def after(num_asked):
    """A stop that lets that many steps pass."""
    asked = iter(range(num_asked - 1))
    return lambda: next(asked, None) is None


@st.composite
def trees(draw, *, most_nodes=7):
    """Trees without usage, with few costs, so that options tie and exclude each other."""
    num_options = draw(st.lists(st.integers(1, 3), min_size=1, max_size=most_nodes))
    cost = st.sampled_from([0, 1, 2, 7, 10**18])
    nodes = [([draw(cost) for _ in range(n)], [0] * n, (0, 1)) for n in num_options]
    edges = {}
    for v in range(1, len(nodes)):
        u = draw(st.integers(0, v - 1))
        edges[u, v] = [[draw(cost) for _ in range(num_options[v])] for _ in range(num_options[u])]
    return choice_graph(nodes, edges)


@given(small_graphs(), st.booleans())
@settings(max_examples=300)
def test_a_bound_never_exceeds_the_optimum(graph, knows_optimum):
    least = optimum(graph)
    bound = lower_bound(graph, upper=least if knows_optimum else None, stop=after(40))
    if least is not None:
        assert bound.value <= least


@given(trees())
@settings(max_examples=150)
def test_on_a_tree_without_limit_the_bound_is_the_optimum(graph):
    least = optimum(graph)
    bound = lower_bound(graph)
    assert (None if bound is None else bound.value) == least


@given(small_graphs(), st.integers(0, 2**32 - 1), st.integers(-3, 8))
@settings(max_examples=200)
def test_any_multipliers_and_messages_prove_a_bound(graph, seed, scale_bits):
    """Whatever whole numbers they are, also where costs are rounded to multiples of 8."""
    least = optimum(graph)
    assume(least is not None)
    relaxation = Relaxation.of(graph, dearest=10**16, scale_bits=scale_bits)
    assume(relaxation is not None)
    random = np.random.default_rng(seed)
    dual = Dual(relaxation, price_bits=20)
    multipliers = random.integers(0, 2**22, relaxation.usage.num_moments)
    message = random.integers(-(2**8), 2**8, dual.message.shape).astype(np.float64)
    assert dual.certified(multipliers, message) <= least


@given(small_graphs(limited=False))
@settings(max_examples=100)
def test_choices_of_the_relaxed_problem_are_possible(graph):
    bound = lower_bound(graph, stop=after(3))
    assume(bound is not None and bound.choices is not None)
    assert (bound.choices >= 0).all()
    assert (bound.choices < graph.num_options).all()
