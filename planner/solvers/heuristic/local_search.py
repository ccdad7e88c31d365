"""Descent over neighbouring layouts.

Estimates are cheap, many at a time, and close to the simulated times: they lead the way, decide
which neighbours are simulated first, and which not at all.
"""

import math

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.arrangement import Arrangement, assemble
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.estimate import estimated_times
from stagecut.planner.solvers.heuristic.moves import neighbouring_cuts
from stagecut.planner.solvers.heuristic.seated import SeatedStages
from stagecut.planner.solvers.heuristic.stage_tables import StageTables
from stagecut.planner.solvers.search.search import Search

BATCH, BATCH_ACTIONS = 16, 200_000
"""Cuts simulated in one call, those of the smallest estimate first; fewer where that were too many actions."""
PATIENCE = 3
"""Calls without an improvement after which a neighbourhood is given up."""
LEAST_GAIN = 1e-4
"""Relative gain of a simulated step that is worth taking."""
LEAST_ESTIMATED_GAIN = 1e-6
"""The same for a step that is estimated only."""


def descend(seated: SeatedStages, stops: Ints) -> tuple[Ints, float]:
    """Go to the neighbouring cut of the smallest estimate until none is better.

    Returns
    -------
    stops, seconds
        The last cut, shape (S,), and its estimated time.
    """
    seconds = float(estimated_times(seated, stops[None])[0])
    while True:
        cuts = neighbouring_cuts(stops)
        times_s = estimated_times(seated, cuts)
        if not len(cuts) or times_s.min() >= seconds * (1 - LEAST_ESTIMATED_GAIN):
            return stops, seconds
        stops, seconds = cuts[np.argmin(times_s)], float(times_s.min())


def improve(
    search: Search, variant: Variant, layout: Arrangement, seconds: float, *, tables: StageTables | None = None
) -> tuple[Arrangement, float]:
    """Move layers between the stages of a layout: see :func:`move_layers`.

    Parameters
    ----------
    tables
        Those of the problem, if they are there already.
    """
    seated, stops = seated_layout(tables or StageTables(search.costs), variant, layout)
    stops, seconds = move_layers(search, seated, stops, seconds)
    return seated.layout(stops), seconds


def seated_layout(tables: StageTables, variant: Variant, layout: Arrangement) -> tuple[SeatedStages, Ints]:
    """The seats of a layout and its cut, shape (S,)."""
    seats = [PlacedGroup(placement=block.placement, opens=block.opens) for block in layout]
    return SeatedStages(tables, variant, seats), np.array([block.stop for block in layout])


def move_layers(search: Search, seated: SeatedStages, stops: Ints, seconds: float) -> tuple[Ints, float]:
    """Go to better neighbouring cuts while the simulated time falls and the budget lasts.

    Parameters
    ----------
    stops, seconds
        Where to start, and its simulated iteration time.

    Returns
    -------
    stops, seconds
        The last cut, shape (S,), and its simulated iteration time.
    """
    better: tuple[Ints, float] | None = (stops, seconds)
    while better is not None:
        stops, seconds = better
        better = _first_better(search, seated, stops, seconds * (1 - LEAST_GAIN))
    return stops, seconds


def simulated(search: Search, seated: SeatedStages, cuts: Ints) -> Floats:
    """Simulated iteration times of cuts, shape (n,); infinite where one is not a legal plan."""
    costs = search.costs.of(seated.variant.share)
    plans = [assemble(costs, seated.variant, seated.layout(stops)) for stops in cuts]
    times_s = iter(search.offer([plan for plan in plans if plan is not None]))
    return np.array([math.inf if plan is None else next(times_s) for plan in plans])


def _first_better(search: Search, seated: SeatedStages, stops: Ints, below_s: float) -> tuple[Ints, float] | None:
    """The best of the first batch of neighbours that has one faster than that."""
    cuts = neighbouring_cuts(stops)
    estimates_s = estimated_times(seated, cuts)
    order = np.argsort(estimates_s, kind="stable")[: np.count_nonzero(estimates_s < below_s)]
    actions = 2 * seated.num_stages * seated.variant.num_microbatches
    size = max(1, min(BATCH, BATCH_ACTIONS // actions))
    for first in range(0, min(len(order), PATIENCE * size), size):
        if search.out_of_budget:
            break
        batch = cuts[order[first : first + size]]
        times_s = simulated(search, seated, batch)
        best = int(np.argmin(times_s))
        if times_s[best] < below_s:
            return batch[best], float(times_s[best])
    return None
