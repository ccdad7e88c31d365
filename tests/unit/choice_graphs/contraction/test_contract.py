import numpy as np
import pytest

from stagecut.planner.choice_graphs.building import build
from stagecut.planner.choice_graphs.contraction.contract import ContractedGraph, contract
from stagecut.planner.choice_graphs.contraction.pieces import UsagePieces, usage_pieces
from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from tests.random_choice_graphs import all_choices, random_choice_graph


def excess(contracted: ContractedGraph, pieces: UsagePieces, choices: np.ndarray) -> int:
    """How much the pieces of the chosen options exceed the room at the worst moment."""
    load = np.zeros(pieces.num_moments + 1, dtype=np.int64)
    for group, chosen in enumerate(choices.tolist()):
        for piece in range(pieces.first_piece[group], pieces.first_piece[group + 1]):
            amount = pieces.amount[pieces.first_amount[piece] + chosen]
            load[pieces.begin[piece]] += amount
            load[pieces.end[piece]] -= amount
    return max((np.cumsum(load)[:-1] - pieces.room).tolist(), default=0)


def legal(graph: ChoiceGraph) -> dict[tuple[int, ...], int]:
    found = {}
    for choices in all_choices(graph):
        evaluation = evaluate(graph, choices)
        if not evaluation.faults:
            found[tuple(choices.tolist())] = evaluation.cost
    return found


@pytest.mark.parametrize("seed", range(60))
def test_groups_have_the_same_legal_choices_at_the_same_costs(seed: int) -> None:
    graph = random_choice_graph(np.random.default_rng(seed))
    contracted = contract(graph)
    if contracted is None:
        assert legal(graph) == {}
        return
    pieces = usage_pieces(contracted)
    found = {}
    for choices in all_choices(contracted.pairs):
        evaluation = evaluate(contracted.pairs, choices)
        expanded = contracted.expand(choices)
        assert contracted.restrict(expanded).tolist() == choices.tolist()
        if not evaluation.faults and excess(contracted, pieces, choices) <= 0:
            found[tuple(expanded.tolist())] = evaluation.cost
    assert found == legal(graph)


def test_a_path_of_one_to_one_edges_becomes_one_node() -> None:
    # Three nodes of two options, the options of neighbours crosswise: two choices are left, 0-1-0 and 1-0-1. With
    # costs of options 1, 2 | 3, 4 | 5, 6 and of pairs 10 they cost 1 + 4 + 5 + 20 = 30 and 2 + 3 + 6 + 20 = 31.
    crosswise = [IMPOSSIBLE, 10, 10, IMPOSSIBLE]
    contracted = contract(
        build(
            name="path",
            first_option=np.array([0, 2, 4, 6]),
            cost=np.array([1, 2, 3, 4, 5, 6]),
            usage=np.zeros(6, dtype=np.int64),
            start=np.zeros(3, dtype=np.int64),
            stop=np.ones(3, dtype=np.int64),
            ends=np.array([[0, 1], [2, 1]]),
            first_pair=np.array([0, 4, 8]),
            pair_cost=np.array(crosswise + crosswise),
            usage_limit=0,
        )
    )
    assert contracted is not None
    assert contracted.pairs.cost.tolist() == [30, 31]
    assert contracted.pairs.num_edges == 0
    assert contracted.expand(np.array([1])).tolist() == [1, 0, 1]


def test_an_option_without_partner_takes_those_that_rely_on_it_along() -> None:
    # Option 1 of node 2 has no partner in node 1, where only option 0 is left then; that has a partner in node 0.
    never = IMPOSSIBLE
    contracted = contract(
        build(
            name="chain",
            first_option=np.array([0, 2, 4, 6]),
            cost=np.array([5, 1, 0, 0, 0, never]),
            usage=np.zeros(6, dtype=np.int64),
            start=np.zeros(3, dtype=np.int64),
            stop=np.ones(3, dtype=np.int64),
            ends=np.array([[0, 1], [1, 2]]),
            first_pair=np.array([0, 4, 8]),
            pair_cost=np.array([7, never, never, 0, 0, never, never, 0]),
            usage_limit=0,
        )
    )
    assert contracted is not None
    assert contracted.supported().tolist() == [True, False] * 3
    assert contracted.pairs.cost.sum() == 12


def test_choices_that_are_impossible_cannot_be_restricted() -> None:
    none = np.zeros(1, dtype=np.int64)
    contracted = contract(
        build(
            name="one node, whose first option is impossible",
            first_option=np.array([0, 2]),
            cost=np.array([IMPOSSIBLE, 1]),
            usage=np.array([0, 0]),
            start=none,
            stop=none,
            ends=np.zeros((0, 2), dtype=np.int64),
            first_pair=none,
            pair_cost=none[:0],
            usage_limit=0,
        )
    )
    assert contracted is not None
    assert contracted.restrict(np.array([1])).tolist() == [0]
    with pytest.raises(ValueError, match="not in list"):
        contracted.restrict(np.array([0]))
