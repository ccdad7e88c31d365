import numpy as np
import pytest

from stagecut.planner.choice_graphs.contraction.contract import contract
from stagecut.planner.choice_graphs.contraction.pieces import usage_pieces
from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.group_program import solve_groups
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits
from stagecut.planner.choice_graphs.search.guide import Guide, Suggestion
from stagecut.planner.choice_graphs.search.prices import prices_of
from stagecut.planner.choice_graphs.search.problem import problem_of
from stagecut.planner.choice_graphs.solving.large import solve_large
from tests.choice_graphs import choice_graph, optimum
from tests.random_choice_graphs import random_choice_graph, random_contracted


@pytest.mark.parametrize("seed", range(40))
def test_bounds_and_programs_of_groups_agree_with_brute_force(seed: int) -> None:
    graph = random_choice_graph(np.random.default_rng(seed))
    contracted, best = contract(graph), optimum(graph)
    if contracted is None:
        assert best is None
        return
    pieces = usage_pieces(contracted)
    proven = solve_groups(contracted, pieces, ProgramLimits())
    assert proven.complete
    assert proven.cost == best
    if best is not None:
        assert proven.bound == best
        assert evaluate(graph, contracted.expand(proven.choices)).cost == best
        bounds = []

        def hear(suggestion: Suggestion, bounds=bounds) -> bool:
            bounds.append(suggestion.bound)
            return len(bounds) < 60

        Guide(problem=problem_of(contracted, pieces)).run(upper=lambda: best, goes_on=hear)
        assert 0 <= max(bound for bound in bounds if bound is not None) <= best


def test_a_binding_limit_gets_the_price_that_closes_the_gap() -> None:
    # One moment, limit 3. Each of three nodes costs 0 and uses 2, or costs 5 and uses 1: all three must pay 15, and
    # at a price of 5 a unit both options cost 10 each, 30 in all, less 5 x 3 for the limit: 15 as well.
    graph = choice_graph([([0, 5], [2, 1], (0, 1))] * 3, limit=3)
    contracted = contract(graph)
    assert contracted is not None
    bounds = []

    def hear(suggestion: Suggestion) -> bool:
        bounds.append(suggestion.bound)
        return len(bounds) < 300

    Guide(problem=problem_of(contracted, usage_pieces(contracted))).run(upper=lambda: 15, goes_on=hear)
    assert max(bound for bound in bounds if bound is not None) == 15


def test_prices_are_never_above_multiplier_times_amount() -> None:
    random = np.random.default_rng(1)
    contracted = random_contracted(random)
    pieces = usage_pieces(contracted)
    problem = problem_of(contracted, pieces)
    multiplier = random.integers(0, 100, pieces.num_moments) / 8
    price = prices_of(problem, multiplier)
    assert price.sum() > 0
    for group, first in enumerate(problem.first[:-1].tolist()):
        exact = np.zeros(problem.first[group + 1] - first)
        for piece in range(problem.first_piece[group], problem.first_piece[group + 1]):
            at = problem.first_amount[piece]
            per_unit = multiplier[problem.begin[piece] : problem.end[piece]].sum()
            exact += per_unit * problem.amount[at : at + len(exact)]
        found = price[first : first + len(exact)]
        assert (found <= exact).all()
        assert (found >= np.floor(exact) - 1).all()


@pytest.mark.parametrize("seed", [1, 5, 9, 13])
def test_a_large_graph_is_solved_by_search_and_program_together(seed: int) -> None:
    graph = random_choice_graph(np.random.default_rng(seed), num_nodes=8)
    choices, bounds = [], [0]
    limits = ProgramLimits(threads=2, on_choices=choices.append, on_bound=bounds.append)
    best = optimum(graph)
    assert solve_large(graph, limits) or best is None
    if best is not None:
        assert evaluate(graph, choices[-1]).cost == max(bounds) == best
