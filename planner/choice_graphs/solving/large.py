"""Large graphs: good choices and a bound on all of them, found side by side."""

from concurrent.futures import ThreadPoolExecutor

from stagecut.planner.choice_graphs.bounds.lower_bound import Bound, lower_bound
from stagecut.planner.choice_graphs.contraction.contract import contract
from stagecut.planner.choice_graphs.contraction.pieces import usage_pieces
from stagecut.planner.choice_graphs.search.primal_search import PrimalSearch
from stagecut.planner.choice_graphs.solving.choice_search import ChoiceSearch


def solve_large(search: ChoiceSearch) -> bool:
    """Search until the gap is closed or the budget spent; whether a choice is possible that keeps the limit, so far.

    One thread raises the bound. Its multipliers are the prices of usage for the other threads, and the choices that
    it prefers at these prices, made legal, are where they begin.
    """
    contracted = contract(search.graph)
    if contracted is None:
        return False
    primal = PrimalSearch(
        contracted,
        usage_pieces(contracted),
        seed=search.options.seed,
        threads=max(1, search.options.threads - 1),
        on_solution=lambda choices, _cost: search.offer(choices),
    )
    primal.begin()

    def ended() -> bool:
        return search.out_of_budget or search.closed

    def hear(bound: Bound) -> None:
        search.raise_bound(bound.value)
        if bound.choices is not None:
            primal.set_multipliers(bound.time, bound.multiplier)
            primal.suggest(bound.choices)

    with ThreadPoolExecutor(1) as pool:
        bounding = pool.submit(lower_bound, search.graph, upper=primal.cost, stop=ended, on_progress=hear)
        while not ended() and not (bounding.done() and primal.best is None):
            primal.run(stop=ended, num_rounds=1)
    return bounding.result() is not None
