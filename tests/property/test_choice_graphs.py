"""Reductions, elimination, program and brute force agree on small choice graphs."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.brute_force import try_all
from stagecut.planner.choice_graphs.exact.elimination import eliminate_all
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits, solve_program
from stagecut.planner.choice_graphs.moments import find_moments
from stagecut.planner.choice_graphs.reductions.components import split
from stagecut.planner.choice_graphs.reductions.reduce import reduce
from stagecut.planner.choice_graphs.solving.solve import solve
from stagecut.planner.core.result import Status
from stagecut.planner.solvers.search.options import SolveOptions
from tests.choice_graphs import legal_cost, optimum, small_graphs

BY_HIGHS = 2e-6
"""Bounds of programs are lowered by a millionth."""


@given(small_graphs())
@settings(max_examples=180)
def test_an_optimum_of_the_reduced_graph_is_one_of_the_whole(graph):
    least, reduced = optimum(graph), reduce(graph)
    if least is None:
        assert reduced is None or try_all(reduced.graph) is None
    else:
        best = try_all(reduced.graph)
        assert legal_cost(graph, reduced.put_back(best)) == least
        assert legal_cost(reduced.graph, best) + reduced.constant == least


@given(small_graphs())
@settings(max_examples=90)
def test_optima_of_the_parts_make_one_of_the_whole(graph):
    assume(not np.any(find_moments(graph).room < 0))
    parts = split(graph)
    found = [try_all(part.graph) for part in parts]
    least = optimum(graph)
    assert (least is None) == any(best is None for best in found)
    assume(least is not None)
    whole = np.zeros(graph.num_nodes, dtype=np.int64)
    for part, best in zip(parts, found, strict=True):
        whole[part.nodes] = best[: len(part.nodes)]
    assert legal_cost(graph, whole) == least


@given(small_graphs(limited=False))
@settings(max_examples=90)
def test_elimination_finds_the_optimum_without_limit(graph):
    done, best = eliminate_all(graph)
    assert done
    assert (None if best is None else legal_cost(graph, best)) == optimum(graph)


@given(small_graphs(), st.booleans())
@settings(max_examples=90)
def test_the_program_finds_and_proves_the_optimum(graph, from_optimum):
    least = optimum(graph)
    proven = solve_program(graph, ProgramLimits(), start=try_all(graph) if from_optimum else None)
    assert proven.complete
    assert proven.cost == least
    if least is None:
        assert proven.bound is None
    else:
        assert least * (1 - BY_HIGHS) - 1 <= proven.bound <= least


@given(small_graphs())
@settings(max_examples=90)
def test_a_search_returns_the_optimum_or_why_there_is_none(graph):
    least = optimum(graph)
    result = solve(graph, SolveOptions(gap=1e-5))
    assert result.fault is None
    assert result.status is (Status.INFEASIBLE if least is None else Status.OPTIMAL)
    assert result.objective == least
    assert (result.overflow is not None) == (least is None)
    assert least is None or result.bound <= least


@given(small_graphs(), st.integers(1, 10**6))
@settings(max_examples=50)
def test_scaled_costs_scale_the_optimum(graph, factor):
    least = optimum(graph)
    assume(least is not None and least * factor < 10**16)
    possible, possible_pairs = graph.cost < 10**17, graph.pair_cost < 10**17
    assume(max(graph.cost[possible].max(initial=0), graph.pair_cost[possible_pairs].max(initial=0)) < 10**8)
    scaled = replace(
        graph,
        cost=np.where(possible, graph.cost * factor, graph.cost),
        pair_cost=np.where(possible_pairs, graph.pair_cost * factor, graph.pair_cost),
    )
    assert solve(scaled, SolveOptions(gap=1e-5)).objective == least * factor


@given(small_graphs())
@settings(max_examples=90)
def test_usage_is_within_the_rows_of_the_moments_just_when_it_is_within_the_limit(graph):
    """All choices of possible options: members' usage above the least against the room, against the evaluation."""
    moments = find_moments(graph)
    first, member = moments.members()
    rng = np.random.default_rng(0)
    for _ in range(10):
        choices = rng.integers(0, graph.num_options)
        chosen = graph.first_option[:-1] + choices
        assume((graph.cost[chosen] < 10**17).all())
        above = graph.usage[chosen] - moments.least_usage
        fits = all(above[member[first[t] : first[t + 1]]].sum() <= moments.room[t] for t in range(moments.num_moments))
        assert fits == (evaluate(graph, choices).peak_usage <= graph.usage_limit)
