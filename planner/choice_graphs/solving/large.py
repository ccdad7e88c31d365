"""Large graphs: a search for good choices and an ascent of the bound, side by side, each helping the other."""

import threading

from stagecut.planner.choice_graphs.bounds.lower_bound import Bound, lower_bound
from stagecut.planner.choice_graphs.contraction.contract import contract
from stagecut.planner.choice_graphs.contraction.pieces import usage_pieces
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.search.primal_search import PrimalSearch
from stagecut.planner.core.arrays import Ints
from stagecut.planner.solvers.search.interruption import uninterrupted

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
    search = PrimalSearch(
        contracted,
        usage_pieces(contracted),
        seed=limits.seed,
        threads=max(1, limits.threads - 1),
        on_solution=lambda choices, _cost: limits.on_choices(choices),
    )
    if start is None or not search.suggest(start):
        search.begin()
    search.run(stop=limits.stop, num_rounds=1)
    bounding = _Bounding(graph, search, limits)
    with bounding:
        while not bounding.is_over():
            if search.best is None:
                bounding.wait(POLL_S)
            else:
                search.run(stop=bounding.is_over)
    return not bounding.proves_none


class _Bounding:
    """The ascent of the bound on a thread of its own, from entering the context to leaving it."""

    def __init__(self, graph: ChoiceGraph, search: PrimalSearch, limits: ProgramLimits) -> None:
        self._graph, self._search, self._limits = graph, search, limits
        self._left = threading.Event()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.proves_none = False
        """Whether no choice is legal."""

    def __enter__(self) -> "_Bounding":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def is_over(self) -> bool:
        """Whether the search should end as well."""
        return self._left.is_set() or self.proves_none or self._limits.stop()

    def wait(self, seconds: float) -> None:
        """Let the thread go on for a while."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while not self.is_over():
                upper = self._search.cost
                bound = lower_bound(self._graph, upper=upper, stop=self.is_over, on_progress=self._tell)
                self.proves_none = bound is None
                while not self.is_over() and not self._improved_on(upper):
                    self._left.wait(POLL_S)
        except Exception as fault:
            self._fault = fault
            self._left.set()

    def _tell(self, bound: Bound) -> None:
        self._limits.on_bound(bound.value)
        self._search.set_multipliers(bound.time, bound.multiplier)
        if bound.choices is not None:
            self._search.suggest(bound.choices)

    def _improved_on(self, upper: int | None) -> bool:
        cost = self._search.cost
        return cost is not None and (upper is None or cost < WORTH_ANOTHER * upper)
