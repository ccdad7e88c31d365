"""Large graphs: good choices and a bound on all of them, found side by side."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from stagecut.planner.choice_graphs.contraction.contract import ContractedGraph, contract
from stagecut.planner.choice_graphs.contraction.pieces import UsagePieces, usage_pieces
from stagecut.planner.choice_graphs.exact.group_program import solve_groups
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.search.primal_search import PrimalSearch
from stagecut.planner.core.arrays import Ints
from stagecut.planner.solvers.search.interruption import uninterrupted

MOST_PAIRS = 200_000
"""Contracted graphs with no more pairs are handed to HiGHS, beside the search."""


@uninterrupted()
def solve_large(graph: ChoiceGraph, limits: ProgramLimits, *, start: Ints | None = None) -> bool:
    """Search until told to stop, or the optimum is proven; whether there may be a legal choice.

    Nodes that determine each other are contracted. One thread raises the bound; its multipliers are the prices of
    usage for the others, and the choices that it prefers at these prices, made legal, are where they begin.
    """
    contracted = contract(graph)
    if contracted is None:
        return False
    pieces = usage_pieces(contracted)
    if (pieces.room < 0).any():
        return False
    primal = PrimalSearch(
        contracted,
        pieces,
        seed=limits.seed,
        threads=max(1, limits.threads - 1),
        on_solution=lambda choices, _cost: limits.on_choices(choices),
    )
    primal.begin()
    if start is not None:
        primal.suggest(start)
    if len(contracted.pairs.pair_cost) > MOST_PAIRS:
        primal.run_guided(stop=limits.stop, on_bound=limits.on_bound)
        return True
    return _beside_program(contracted, pieces, primal, limits)


def _beside_program(
    contracted: ContractedGraph, pieces: UsagePieces, primal: PrimalSearch, limits: ProgramLimits
) -> bool:
    """Solve the program of the groups while the search goes on; whether there may be a legal choice."""
    on_groups = replace(limits, threads=1, on_choices=lambda choices: limits.on_choices(contracted.expand(choices)))
    with ThreadPoolExecutor(1) as pool:
        proving = pool.submit(solve_groups, contracted, pieces, on_groups, start=primal.best)
        primal.run_guided(stop=lambda: limits.stop() or proving.done(), on_bound=limits.on_bound)
        proven = proving.result()
    return proven.choices is not None or not proven.complete
