"""Descent over neighbouring plans: layers moved, then device groups changed.

Estimates are cheap and close to simulated times: they decide which neighbours are simulated, and in what order.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.arrangement import Arrangement, Assembly
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.estimate import estimated_times
from stagecut.planner.solvers.heuristic.min_max_cut import min_max_stops
from stagecut.planner.solvers.heuristic.moves import groups_of, neighbouring_cuts, neighbouring_runs, runs_of, suffice
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.search.search import Search

BATCH, BATCH_ACTIONS = 16, 200_000
"""Cuts simulated in one call, the smallest estimates first; fewer if they have more actions, to keep within budgets.

Half or twice as many lead to the same 5 plans."""
PATIENCE = 3
"""Calls without an improvement after which a neighbourhood is given up; without it up to 20 % slower, same plans."""
LEAST_GAIN = 1e-4
"""Relative gain of a step worth taking; from 1e-6 to 1e-4, 23 problems of the catalogue have the same plans."""
MOST_STAGES = 6000
"""Stages estimated in all changes of groups from one plan; bounds the time, and changes none of 12 plans."""
NUM_SIMULATED = 8
"""Changes of groups simulated, the smallest estimates first; 3 lead to the same 12 plans."""

WORTH_MOVING = 1.03
"""Layers are moved behind a change of groups that leaves the plan at most this many times slower."""


def descend(sequence: SequenceCosts, stops: Ints) -> tuple[Ints, float]:
    """The cut at which no neighbour has a smaller estimate, going downhill from `stops`; and its estimated time."""
    seconds = float(estimated_times(sequence, stops[None])[0])
    while True:
        cuts = neighbouring_cuts(stops)
        times_s = estimated_times(sequence, cuts)
        if not len(cuts) or times_s.min() >= seconds * (1 - LEAST_GAIN):
            return stops, seconds
        stops, seconds = cuts[np.argmin(times_s)], float(times_s.min())


def improve(search: Search, variant: Variant, arrangement: Arrangement, seconds: float) -> float:
    """Move layers between the stages of an arrangement; return the last time, see :func:`move_layers`."""
    return move_layers(search, *sequence_of(StageTables(search.costs), variant, arrangement), seconds)[1]


def sequence_of(tables: StageTables, variant: Variant, arrangement: Arrangement) -> tuple[SequenceCosts, Ints]:
    """The stages of an arrangement and its cut, shape (S,)."""
    groups = [PlacedGroup(placement=block.placement, opens=block.opens) for block in arrangement]
    return SequenceCosts(tables, variant, groups), np.array([block.stop for block in arrangement])


def move_layers(search: Search, sequence: SequenceCosts, stops: Ints, seconds: float) -> tuple[Ints, float]:
    """Go to better neighbouring cuts while the simulated time falls and the budget lasts.

    Takes the first cut, shape (S,), with its simulated iteration time, and returns the last one with its time.
    """
    better: tuple[Ints, float] | None = (stops, seconds)
    while better is not None:
        stops, seconds = better
        better = _first_better(search, sequence, stops, seconds * (1 - LEAST_GAIN))
    return stops, seconds


def settled(search: Search, sequence: SequenceCosts, stops: Ints, near_s: float) -> tuple[Ints, float]:
    """A cut, shape (S,), and its simulated time, with layers moved if it takes hardly longer than `near_s`."""
    (seconds,) = simulated_times(search, sequence, stops[None]).tolist()
    return move_layers(search, sequence, stops, seconds) if seconds <= WORTH_MOVING * near_s else (stops, seconds)


def change_groups(search: Search, tables: StageTables, sequence: SequenceCosts, stops: Ints, seconds: float) -> None:
    """Change device groups, then move layers, while the simulated time falls and the budget lasts.

    Takes the first cut, shape (S,), with its simulated iteration time.
    """
    tried = {sequence.groups}
    while not search.out_of_budget:
        ends: list[tuple[float, int, SequenceCosts, Ints]] = []
        for neighbour, cut in _promising(search, tables, sequence, tried):
            tried.add(neighbour.groups)
            cut, end_s = settled(search, neighbour, descend(neighbour, cut)[0], seconds)
            ends.append((end_s, len(ends), neighbour, cut))
        end_s, _, neighbour, cut = min(ends, default=(seconds, 0, sequence, stops))
        if end_s >= seconds * (1 - LEAST_GAIN):
            return
        sequence, stops, seconds = neighbour, cut, end_s


def simulated_times(search: Search, sequence: SequenceCosts, cuts: Ints) -> Floats:
    """Simulated iteration times of cuts, shape (n,); infinite where one is not a legal plan."""
    costs = search.costs.of(sequence.variant.share)
    return search.offer_possible(Assembly(costs, sequence.variant).plans(sequence.groups, cuts.tolist()))


def _first_better(search: Search, sequence: SequenceCosts, stops: Ints, below_s: float) -> tuple[Ints, float] | None:
    """The best cut of the first batch of neighbours with one faster than that; None if there is none."""
    cuts = neighbouring_cuts(stops)
    estimates_s = estimated_times(sequence, cuts)
    order = np.argsort(estimates_s, kind="stable")[: np.count_nonzero(estimates_s < below_s)]
    actions = 2 * sequence.num_stages * sequence.variant.num_microbatches
    size = max(1, min(BATCH, BATCH_ACTIONS // actions))
    for first in range(0, min(len(order), PATIENCE * size), size):
        if search.out_of_budget:
            break
        batch = cuts[order[first : first + size]]
        times_s = simulated_times(search, sequence, batch)
        best = int(np.argmin(times_s))
        if times_s[best] < below_s:
            return batch[best], float(times_s[best])
    return None


def _promising(
    search: Search, tables: StageTables, sequence: SequenceCosts, tried: set[tuple[PlacedGroup, ...]]
) -> list[tuple[SequenceCosts, Ints]]:
    """The neighbours to simulate, with the cuts to begin from."""
    found: list[tuple[float, int, SequenceCosts, Ints]] = []
    for neighbour in islice(_neighbours(search, tables, sequence, tried), MOST_STAGES // sequence.num_stages):
        cut = None if search.out_of_budget else min_max_stops(neighbour, neighbour.leeway)
        if cut is not None:
            found.append((float(estimated_times(neighbour, cut[None])[0]), len(found), neighbour, cut))
    return [(neighbour, cut) for _, _, neighbour, cut in sorted(found)[:NUM_SIMULATED]]


def _neighbours(
    search: Search, tables: StageTables, sequence: SequenceCosts, tried: set[tuple[PlacedGroup, ...]]
) -> Iterator[SequenceCosts]:
    """Changed sequences of groups for which there are enough hosts and devices."""
    variant = sequence.variant
    cluster = search.costs.of(variant.share).cluster
    runs = runs_of(sequence.groups)
    for changed in dict.fromkeys(neighbouring_runs(search.problem, cluster, variant.micro_batch, runs)):
        groups = groups_of(changed)
        if groups not in tried and suffice(cluster, tables.num_layers, groups):
            yield SequenceCosts(tables, variant, groups)
