"""Improve a legal choice."""

import time
from collections.abc import Callable

from stagecut.planner.choice_graphs.contraction.contract import contract
from stagecut.planner.choice_graphs.contraction.pieces import usage_pieces
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.search.primal_search import PrimalSearch
from stagecut.planner.core.numerics.arrays import Floats, Ints


def improve(
    graph: ChoiceGraph,
    start: Ints,
    *,
    seconds: float,
    seed: int = 0,
    threads: int = 1,
    num_rounds: int | None = None,
    multipliers: tuple[Ints, Floats] | None = None,
    on_solution: Callable[[Ints, int], None] = lambda _choices, _cost: None,
) -> Ints:
    """Return a legal choice (nodes,) that is never worse than a legal start.

    Parameters
    ----------
    num_rounds
        Ends the search before the time; equal seeds, threads and rounds then give equal choices.
    multipliers
        Moments, and the cost of a unit of usage at each.
    on_solution
        Called with every better choice and its cost.
    """
    deadline = time.monotonic() + seconds
    contracted = contract(graph)
    if contracted is None:
        return start
    search = PrimalSearch(contracted, usage_pieces(contracted), seed=seed, threads=threads, on_solution=on_solution)
    if multipliers is not None:
        search.set_multipliers(*multipliers)
    if search.suggest(start):
        search.run(stop=lambda: time.monotonic() > deadline, num_rounds=num_rounds)
    return start if search.best is None else contracted.expand(search.best)
