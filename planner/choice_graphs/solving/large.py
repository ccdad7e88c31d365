"""Large graphs: a search for good choices and an ascent of the bound, side by side, each helping the other."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stagecut.planner.choice_graphs.bounds.lower_bound import Bound, lower_bound
from stagecut.planner.choice_graphs.contraction.contract import ContractedGraph, contract
from stagecut.planner.choice_graphs.contraction.pieces import UsagePieces, usage_pieces
from stagecut.planner.choice_graphs.exact.group_program import solve_groups
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.search.primal_search import PrimalSearch
from stagecut.planner.core.arrays import Ints
from stagecut.planner.solvers.search.interruption import uninterrupted

MOST_PAIRS_OF_PROGRAM = 200_000
"""Contracted graphs with no more pairs are handed to HiGHS; it proves what no multipliers can."""
GUIDED_SHARE, MOST_GUIDED_S = 0.35, 120.0
"""Share of the time for the guide, which needs no good choice to find multipliers near the best; then the ascent, which
does, goes further."""
WORTH_ANOTHER = 0.999
"""A bound that has come to its end is sought again once the best choice costs less than this part of what it knew."""
POLL_S = 0.05


@uninterrupted()
def solve_large(graph: ChoiceGraph, limits: ProgramLimits, *, start: Ints | None = None) -> bool:
    """Search until told to stop; whether there may be a legal choice.

    The search gives the bound the cost of its best choice, above which nothing needs to be looked at. The bound gives
    the search prices of usage, and choices to begin from: what the relaxed problem prefers at these prices.
    """
    contracted = contract(graph)
    if contracted is None:
        return False
    pieces = usage_pieces(contracted)
    if np.any(pieces.room < 0):
        return False
    search = PrimalSearch(
        contracted,
        pieces,
        seed=limits.seed,
        threads=max(1, limits.threads - 1),
        on_solution=lambda choices, _cost: limits.on_choices(choices),
    )
    if start is None or not search.suggest(start):
        search.begin()
    if len(contracted.pairs.pair_cost) <= MOST_PAIRS_OF_PROGRAM:
        search.run(stop=limits.stop, num_rounds=1)
        side = _Side(search, limits, lambda proof: proof.by_program(contracted, pieces))
    else:
        guided_until = time.monotonic() + min(GUIDED_SHARE * limits.seconds, MOST_GUIDED_S)
        search.run_guided(stop=lambda: limits.stop() or time.monotonic() > guided_until, on_bound=limits.on_bound)
        side = _Side(search, limits, lambda proof: proof.by_multipliers(graph))
    with side:
        while not side.is_over():
            if search.best is None:
                side.wait(POLL_S)
            else:
                search.run(stop=side.is_over)
    return not side.proves_none


class _Side:
    """The proof, on a thread of its own from entering the context to leaving it; the search is over when it is."""

    def __init__(self, search: PrimalSearch, limits: ProgramLimits, prove: "Callable[[_Side], None]") -> None:
        self._search, self._limits, self._prove = search, limits, prove
        self._left = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.proves_none = False
        """Whether no choice is legal."""

    def __enter__(self) -> "_Side":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def is_over(self) -> bool:
        """Whether the search should end."""
        return self._left.is_set() or self._limits.stop()

    def wait(self, seconds: float) -> None:
        """Let the thread go on for a while."""
        self._thread.join(seconds)

    def by_program(self, contracted: ContractedGraph, pieces: UsagePieces) -> None:
        """Solve the program of the groups."""
        limits = replace(
            self._limits,
            stop=self.is_over,
            threads=1,
            on_choices=lambda choices: self._limits.on_choices(contracted.expand(choices)),
        )
        proven = solve_groups(contracted, pieces, limits, start=self._search.best)
        self.proves_none = proven.complete and proven.choices is None

    def by_multipliers(self, graph: ChoiceGraph) -> None:
        """Raise the bound, anew after much better choices."""
        while not self.is_over():
            upper = self._search.cost
            if lower_bound(graph, upper=upper, stop=self.is_over, on_progress=self._tell) is None:
                self.proves_none = True
                return
            while not self.is_over() and not self._improved_on(upper):
                self._left.wait(POLL_S)

    def _run(self) -> None:
        try:
            self._prove(self)
        except Exception as fault:
            self._fault = fault
        finally:
            self._left.set()

    def _tell(self, bound: Bound) -> None:
        self._limits.on_bound(bound.value)
        self._search.set_multipliers(bound.time, bound.multiplier)
        if bound.choices is not None:
            self._search.suggest(bound.choices)

    def _improved_on(self, upper: int | None) -> bool:
        cost = self._search.cost
        return cost is not None and (upper is None or cost < WORTH_ANOTHER * upper)
