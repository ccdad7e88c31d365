"""Descent over neighbouring layouts, judged by the simulator.

Lower bounds are cheap and close to the simulated times, so they decide which neighbours are
simulated first, and which not at all.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from planner.core.plan import Plan
from planner.core.problem import Variant
from planner.network.layout import Layout, assemble
from planner.simulator.bounds import lower_bound
from planner.solvers.search import Search

Move = Callable[[Layout], Iterator[Layout]]
"""All neighbours of a layout; whether they fit is checked by the search."""

BATCH = 16
"""Layouts simulated in one call, those of the smallest lower bound first."""
PATIENCE = 3
"""Calls without an improvement after which a neighbourhood is given up."""
POLISHED = 3
"""Neighbours with other groups in which layers are moved before they are judged."""
LEAST_GAIN = 1e-4
"""Relative gain of a step of layers that is worth taking; for a step of groups it is ten times that."""


def improve(
    search: Search, variant: Variant, layout: Layout, seconds: float, *, moves: Sequence[Move]
) -> tuple[Layout, float]:
    """Go to a better neighbour until none is found or the budget is spent.

    Parameters
    ----------
    layout, seconds
        Where to start, and its simulated iteration time.
    moves
        Neighbourhoods; one is tried only where those before it have nothing better.

    Returns
    -------
    layout, seconds
        The last layout and its simulated iteration time.
    """
    index = 0
    while index < len(moves) and not search.out_of_budget:
        better = _first_better(search, variant, moves[index](layout), seconds * (1 - LEAST_GAIN))
        if better is None:
            index += 1
        else:
            (layout, seconds), index = better, 0
    return layout, seconds


def restructure(
    search: Search,
    variant: Variant,
    layout: Layout,
    seconds: float,
    *,
    groups: Sequence[Move],
    layers: Sequence[Move],
) -> tuple[Layout, float]:
    """Descent over changes of device groups, each judged after its layers have been moved.

    Parameters
    ----------
    layout, seconds
        Where to start, and its simulated iteration time.
    groups, layers
        Moves of device groups and of layers: :mod:`planner.solvers.moves`.

    Returns
    -------
    layout, seconds
        The last layout and its simulated iteration time.
    """
    polished: set[Layout] = set()
    while not search.out_of_budget:
        neighbours = (neighbour for move in groups for neighbour in move(layout) if neighbour not in polished)
        starts = fastest(search, variant, neighbours, count=POLISHED)
        polished.update(start for start, _ in starts)
        ends = [improve(search, variant, start, start_s, moves=layers) for start, start_s in starts]
        best = min(ends, key=lambda end: end[1], default=(layout, seconds))
        if best[1] >= seconds * (1 - 10 * LEAST_GAIN):
            return min(best, (layout, seconds), key=lambda end: end[1])
        layout, seconds = best
    return layout, seconds


def fastest(search: Search, variant: Variant, layouts: Iterable[Layout], *, count: int) -> list[tuple[Layout, float]]:
    """The `count` fastest of the layouts that fit, with their simulated iteration times."""
    found: list[tuple[Layout, float]] = []
    candidates = _by_bound(search, variant, layouts)
    for first in range(0, len(candidates), BATCH):
        limit_s = found[count - 1][1] if len(found) >= count else math.inf
        if search.out_of_budget or candidates[first].bound_s >= limit_s:
            break
        found += _simulated(search, candidates[first : first + BATCH])
        found.sort(key=lambda item: item[1])
    return found[:count]


def _first_better(
    search: Search, variant: Variant, layouts: Iterable[Layout], below_s: float
) -> tuple[Layout, float] | None:
    """The best of the first batch that has a layout faster than that."""
    candidates = [candidate for candidate in _by_bound(search, variant, layouts) if candidate.bound_s < below_s]
    for first in range(0, min(len(candidates), PATIENCE * BATCH), BATCH):
        if search.out_of_budget:
            break
        best = min(_simulated(search, candidates[first : first + BATCH]), key=lambda item: item[1])
        if best[1] < below_s:
            return best
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A layout that fits."""

    bound_s: float
    layout: Layout
    plan: Plan


def _by_bound(search: Search, variant: Variant, layouts: Iterable[Layout]) -> list[_Candidate]:
    """The layouts that fit, the smallest lower bound first."""
    candidates = []
    for layout in dict.fromkeys(layouts):
        plan = assemble(search.costs, variant, layout)
        if plan is not None:
            bound_s = lower_bound(search.costs.plan(plan))
            candidates.append(_Candidate(bound_s=bound_s, layout=layout, plan=plan))
    return sorted(candidates, key=lambda candidate: candidate.bound_s)


def _simulated(search: Search, candidates: Sequence[_Candidate]) -> list[tuple[Layout, float]]:
    times_s = search.offer([candidate.plan for candidate in candidates])
    return [(candidate.layout, seconds) for candidate, seconds in zip(candidates, times_s, strict=True)]
