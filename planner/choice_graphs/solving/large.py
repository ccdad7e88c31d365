"""Large graphs: good choices and a bound on all of them, found side by side."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from stagecut.planner.choice_graphs.bounds.lower_bound import Bound, lower_bound
from stagecut.planner.choice_graphs.contraction.contract import contract
from stagecut.planner.choice_graphs.contraction.pieces import usage_pieces
from stagecut.planner.choice_graphs.exact.group_program import solve_groups
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits, Proven
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.search.primal_search import PrimalSearch
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.solvers.search.interruption import uninterrupted

MOST_PAIRS = 200_000
"""Contracted graphs with no more pairs are handed to HiGHS, beside the search."""
NEAR = 1.5
"""The bundle method takes over from the first guide when the best choice costs no more times the bound."""
ROUNDS_BESIDE = 10
"""Rounds of the search beside HiGHS, which then has the cores for itself."""
WORTH_ANOTHER, WORTH_AT_ONCE = 0.999, 0.95
"""The bundle method begins again when the best choice costs less than this part of what it knew: after its end, or
in its midst.
"""
POLL_S = 0.05


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
    on_groups = replace(limits, threads=1, on_choices=lambda choices: limits.on_choices(contracted.expand(choices)))
    with ThreadPoolExecutor(2) as pool:
        small = len(contracted.pairs.pair_cost) <= MOST_PAIRS
        proving = pool.submit(solve_groups, contracted, pieces, on_groups, start=primal.best) if small else None
        bounding = _Bounding(
            graph=graph, primal=primal, limits=limits, small=small, stop=lambda: limits.stop() or _is_over(proving)
        )
        bounds = pool.submit(bounding.run)
        rounds = 0
        while not (bounding.stop() or _ends_search(bounds, primal)):
            if primal.best is None or (small and rounds > ROUNDS_BESIDE):
                time.sleep(POLL_S)
            else:
                primal.run(stop=bounding.stop, num_rounds=1)
                rounds += 1
        bounds.result()
        return proving is None or _may_be_legal(proving.result())


def _is_over(proving: Future[Proven] | None) -> bool:
    return proving is not None and proving.done()


def _ends_search(bounds: Future[None], primal: PrimalSearch) -> bool:
    """Whether the thread of the bound failed, or ended before any choice was legal."""
    return bounds.done() and (bounds.exception() is not None or primal.best is None)


def _may_be_legal(proven: Proven) -> bool:
    return proven.choices is not None or not proven.complete


@dataclass(kw_only=True, eq=False)
class _Bounding:
    """The thread that raises the bound, and tells the search what it finds."""

    graph: ChoiceGraph
    primal: PrimalSearch
    limits: ProgramLimits
    stop: Callable[[], bool]
    small: bool
    """Whether HiGHS raises the bound as well; the guide is enough then."""
    best: int = 0

    def run(self) -> None:
        """The guide, quick to begin, until its bound is near the best choice; then the bundle method."""
        self.primal.guide(stop=lambda: self.stop() or (self._is_near() and not self.small), on_bound=self._raise)
        while not (self.small or self.stop() or self.primal.cost is None):
            upper = self.primal.cost
            much_less = partial(self._is_below, WORTH_AT_ONCE * upper)
            lower_bound(self.graph, upper=upper, stop=much_less, on_progress=self._tell)
            while not self._is_below(WORTH_ANOTHER * upper):
                time.sleep(POLL_S)

    def _is_near(self) -> bool:
        return self.primal.cost is not None and self.primal.cost <= NEAR * self.best

    def _is_below(self, cost: float) -> bool:
        return self.stop() or (self.primal.cost is not None and self.primal.cost < cost)

    def _raise(self, bound: int) -> None:
        self.best = max(self.best, bound)
        self.limits.on_bound(bound)

    def _tell(self, bound: Bound) -> None:
        self._raise(bound.value)
        self.primal.set_multipliers(bound.time, bound.multiplier)
        if bound.choices is not None:
            self.primal.suggest(bound.choices)
