import itertools

import numpy as np
import pytest

from stagecut.planner.choice_graphs.contraction.pieces import usage_pieces
from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.search.improve import improve
from stagecut.planner.choice_graphs.search.problem import problem_of
from stagecut.planner.choice_graphs.search.random_numbers import random_state
from stagecut.planner.choice_graphs.search.state import change, state_of
from stagecut.planner.choice_graphs.search.trees import choose_tree, grow, restore, tree_of
from tests.choice_graphs import choice_graph, optimum
from tests.random_choice_graphs import all_choices, random_choice_graph, random_contracted


def worst_legal(graph: ChoiceGraph) -> np.ndarray | None:
    legal = [choices for choices in all_choices(graph) if not evaluate(graph, choices).faults]
    return max(legal, key=lambda choices: evaluate(graph, choices).cost, default=None)


@pytest.mark.parametrize("seed", range(20))
def test_a_state_changed_step_by_step_is_the_state_of_its_choice(seed: int) -> None:
    random = np.random.default_rng(seed)
    contracted = random_contracted(random)
    problem = problem_of(contracted, usage_pieces(contracted))
    num_options = np.diff(problem.first)
    state = state_of(problem, np.zeros(len(num_options), dtype=np.int64))
    for _ in range(30):
        group = int(random.integers(len(num_options)))
        change(problem, state, group, int(random.integers(num_options[group])))
    anew = state_of(problem, state.choice)
    assert state.total.tolist() == anew.total.tolist()
    assert state.marginal.tolist() == anew.marginal.tolist()
    assert state.slack.least.tolist() == anew.slack.least.tolist()
    evaluation = evaluate(contracted.graph, contracted.expand(state.choice))
    if not evaluation.faults:
        assert state.total[0] == evaluation.cost
        assert state.slack.least.min(initial=0) >= 0


@pytest.mark.parametrize("seed", range(20))
def test_a_tree_is_chosen_as_well_as_its_groups_can_be(seed: int) -> None:
    random = np.random.default_rng(seed)
    contracted = random_contracted(random)
    problem = problem_of(contracted, usage_pieces(contracted))
    num_options = np.diff(problem.first)
    state = state_of(problem, random.integers(0, num_options))
    tree, price = tree_of(problem), random.integers(0, 30, len(problem.cost))
    size = grow(problem, tree, int(random.integers(len(num_options))), 4, random_state(seed))
    groups = tree.group[:size]
    assert not tree.num_links.any()

    def priced(choice: np.ndarray) -> int:
        return int(state_of(problem, choice).total[0] + price[problem.first[:-1] + choice].sum())

    costs = []
    for options in itertools.product(*(range(k) for k in num_options[groups].tolist())):
        choice = state.choice.copy()
        choice[groups] = options
        costs.append(priced(choice))
    before = state.choice.copy()
    choose_tree(problem, state, price, tree, size)
    assert priced(state.choice) == min(costs)
    restore(problem, state, tree, size)
    assert state.choice.tolist() == before.tolist()


def test_the_search_ends_at_the_optimum_of_small_graphs_and_never_above_its_start() -> None:
    solved = []
    for seed in range(60):
        graph = random_choice_graph(np.random.default_rng(seed))
        start = worst_legal(graph)
        if start is None:
            continue
        found = evaluate(graph, improve(graph, start, seconds=60, num_rounds=4))
        assert found.faults == ()
        assert found.cost <= evaluate(graph, start).cost
        solved.append(found.cost == optimum(graph))
    assert np.mean(solved) >= 0.9


def test_equal_seeds_rounds_and_threads_give_equal_choices() -> None:
    graph = random_choice_graph(np.random.default_rng(5), num_nodes=8)
    start = worst_legal(graph)
    assert start is not None
    heard: list[list[int]] = [[], []]
    found = [
        improve(graph, start, seconds=60, num_rounds=2, threads=2, on_solution=lambda _, cost, to=to: to.append(cost))
        for to in heard
    ]
    assert found[0].tolist() == found[1].tolist()
    assert heard[0] == heard[1] == sorted(heard[0], reverse=True)
    assert heard[0][-1] == evaluate(graph, found[0]).cost


def test_a_search_without_time_returns_its_start() -> None:
    graph = choice_graph([([3, 1], [0, 0], (0, 1))])
    assert improve(graph, np.array([0]), seconds=0).tolist() == [0]


def test_a_start_above_the_limit_is_made_legal() -> None:
    # Both nodes are alive together; of their cheap options only one fits, the other node pays 5 instead of 1.
    graph = choice_graph([([1, 5], [4, 0], (0, 2)), ([0, 7], [4, 0], (0, 2))], limit=5)
    found = evaluate(graph, improve(graph, np.array([0, 0]), seconds=60, num_rounds=1))
    assert found.faults == ()
    assert found.cost == 5
