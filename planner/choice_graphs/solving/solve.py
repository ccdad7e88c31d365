"""The entry: reductions, then every part of the graph by the method for its size."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

import numpy as np

from stagecut.planner.choice_graphs.building import least_total
from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.brute_force import try_all
from stagecut.planner.choice_graphs.exact.elimination import eliminate_all
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits, solve_program
from stagecut.planner.choice_graphs.exact.overflow import why_illegal
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.reductions.components import Component, split
from stagecut.planner.choice_graphs.reductions.reduce import Reduced, reduce
from stagecut.planner.choice_graphs.result import ChoiceResult
from stagecut.planner.choice_graphs.solving.choice_search import ChoiceObserver, ChoiceSearch
from stagecut.planner.choice_graphs.solving.coordinate_descent import descend
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.solvers.search.budget import RunLimits
from stagecut.planner.solvers.search.interruption import interruptible
from stagecut.planner.solvers.search.options import SolveOptions

FEW_CHOICES = 2**12
"""Parts with no more are solved by trying all of them, in less time than HiGHS takes to begin."""
MOST_PAIRS_OF_PROGRAM = 400_000
"""Larger graphs are not handed to HiGHS whole. They are contracted as they are: reductions take much longer than that,
and nodes that they eliminate determine no others any more."""
PROGRAM_SHARE = 0.5
"""Share of the time left that the program may take, before search and bound for large parts take over."""
MOST_REDUCING = 0.2
"""Share of the time limit after which reductions end."""


def solve(
    graph: ChoiceGraph,
    options: SolveOptions,
    *,
    observer: ChoiceObserver | None = None,
    **limits: Unpack[RunLimits],
) -> ChoiceResult:
    """Find a choice of least cost within the usage limit, and a bound on all of them.

    Whatever ends the search, the result has the best choice and bound found by then.

    Parameters
    ----------
    observer
        Called with every improvement of choice or bound.
    limits
        See :class:`stagecut.planner.solvers.search.budget.RunLimits`.
    """
    search = ChoiceSearch(graph, options, observer=observer, **limits)
    with search.surviving():
        interruptible(lambda: _solve(search), search.patience_s)
    return search.result()


def _solve(search: ChoiceSearch) -> None:
    may_be_legal = _solve_whole if len(search.graph.pair_cost) > MOST_PAIRS_OF_PROGRAM else _solve_parts
    if not may_be_legal(search):
        limits = ProgramLimits(seconds=search.seconds_left, stop=lambda: search.out_of_budget)
        search.reason = why_illegal(search.graph, limits)


def _solve_parts(search: ChoiceSearch) -> bool:
    reduced = reduce(search.graph, stop=search.stop_after(MOST_REDUCING * search.seconds_left))
    return reduced is not None and _Parts(search, reduced).solve()


def _solve_whole(search: ChoiceSearch) -> bool:
    from stagecut.planner.choice_graphs.solving.large import solve_large  # loads compiled code

    search.raise_bound(least_total(search.graph))
    return solve_large(search.graph, limits_of(search, on_choices=search.offer, on_bound=search.raise_bound))


def limits_of(
    search: ChoiceSearch, *, on_choices: Callable[[Ints], None], on_bound: Callable[[int], None]
) -> ProgramLimits:
    """What is left of the budget."""
    return ProgramLimits(
        seconds=search.seconds_left,
        stop=lambda: search.out_of_budget or search.closed,
        threads=search.options.threads,
        seed=search.options.seed,
        gap=search.options.gap / 2,
        on_choices=on_choices,
        on_bound=on_bound,
    )


def _exactly(graph: ChoiceGraph) -> tuple[bool, Ints | None]:
    """The cheapest choice without any program, where that is quick; whether it was, and None if none is legal."""
    if math.prod(graph.num_options.tolist()) <= FEW_CHOICES:
        return True, try_all(graph)
    return eliminate_all(graph)


class _Parts:
    """The parts of a reduced graph, equal ones together, and what is known about each."""

    def __init__(self, search: ChoiceSearch, reduced: Reduced) -> None:
        self._search, self._reduced = search, reduced
        equal: dict[bytes, list[Component]] = {}
        for part in split(reduced.graph):
            equal.setdefault(part.key, []).append(part)
        self._kinds = sorted(equal.values(), key=lambda parts: len(parts[0].graph.pair_cost))
        self._best: list[Ints | None] = [None] * len(self._kinds)
        self._bounds = [least_total(parts[0].graph) for parts in self._kinds]

    def solve(self) -> bool:
        """Solve one part of each kind, small ones first; whether there may be a legal choice."""
        self._offer()
        self._raise_total()
        for kind, parts in enumerate(self._kinds):
            if self._search.out_of_budget:
                break
            if not self._solve_part(kind, parts[0].graph):
                return False
        return True

    def _solve_part(self, kind: int, graph: ChoiceGraph) -> bool:
        done, choices = _exactly(graph)
        if done:
            if choices is None:
                return False
            self._keep(kind, choices)
            self._raise(kind, evaluate(graph, choices).cost)
            return True
        limits = limits_of(
            self._search,
            on_choices=lambda found: self._keep(kind, found),
            on_bound=lambda bound: self._raise(kind, bound),
        )
        patience = self._search.stop_after(PROGRAM_SHARE * self._search.seconds_left / (len(self._kinds) - kind))
        briefly = replace(limits, stop=lambda: patience() or limits.stop())
        proven = solve_program(graph, briefly, start=descend(graph, stop=limits.stop))
        if proven.complete or limits.stop():
            return proven.choices is not None or not proven.complete
        from stagecut.planner.choice_graphs.solving.large import solve_large  # loads compiled code

        fair = self._search.stop_after(self._search.seconds_left / (len(self._kinds) - kind))
        return solve_large(graph, replace(limits, stop=lambda: fair() or limits.stop()), start=self._best[kind])

    def _keep(self, kind: int, choices: Ints) -> None:
        self._best[kind] = choices
        self._offer()

    def _raise(self, kind: int, bound: int) -> None:
        self._bounds[kind] = max(self._bounds[kind], bound)
        self._raise_total()

    def _raise_total(self) -> None:
        total = sum(bound * len(parts) for bound, parts in zip(self._bounds, self._kinds, strict=True))
        self._search.raise_bound(self._reduced.constant + total)

    def _offer(self) -> None:
        """Put the choices of all parts together, once each has one."""
        whole = np.zeros(self._reduced.graph.num_nodes, dtype=np.int64)
        for best, parts in zip(self._best, self._kinds, strict=True):
            if best is None:
                return
            for part in parts:
                whole[part.nodes] = best[: len(part.nodes)]
        self._search.offer(self._reduced.put_back(whole))
