"""Descent over changes of device groups, each judged after its layers have been moved."""

from collections.abc import Iterator
from itertools import islice

from stagecut.planner.core.arrays import Ints
from stagecut.planner.network.device_groups import PlacedGroup, name_devices
from stagecut.planner.solvers.heuristic.balance import balanced
from stagecut.planner.solvers.heuristic.estimate import estimated_times
from stagecut.planner.solvers.heuristic.local_search import descend, move_layers, simulated
from stagecut.planner.solvers.heuristic.moves import neighbouring_runs, runs_of, seats_of
from stagecut.planner.solvers.heuristic.seated import SeatedStages
from stagecut.planner.solvers.heuristic.stage_tables import StageTables
from stagecut.planner.solvers.search.search import Search

MOST_STAGES = 6000
"""Stages of all changes looked at from one plan."""
NUM_SIMULATED = 8
"""Changes simulated, those of the smallest estimate."""
LEAST_GAIN = 1e-3
"""Relative gain of a step that is worth taking."""


def regroup(search: Search, tables: StageTables, seated: SeatedStages, stops: Ints, seconds: float) -> float:
    """Change groups while the simulated time falls and the budget lasts.

    Parameters
    ----------
    stops, seconds
        Where to start, and its simulated iteration time.

    Returns
    -------
    float
        The last simulated iteration time.
    """
    tried = {seated.seats}
    while not search.out_of_budget:
        ends: list[tuple[float, int, SeatedStages, Ints]] = []
        for neighbour in _promising(search, tables, seated, tried):
            tried.add(neighbour.seats)
            cut = balanced(neighbour)
            assert cut is not None
            cut, _ = descend(neighbour, cut)
            (start_s,) = simulated(search, neighbour, cut[None])
            cut, end_s = move_layers(search, neighbour, cut, float(start_s))
            ends.append((end_s, len(ends), neighbour, cut))
        end_s, _, neighbour, cut = min(ends, default=(seconds, 0, seated, stops))
        if end_s >= seconds * (1 - LEAST_GAIN):
            return min(end_s, seconds)
        seated, stops, seconds = neighbour, cut, end_s
    return seconds


def _promising(
    search: Search, tables: StageTables, seated: SeatedStages, tried: set[tuple[PlacedGroup, ...]]
) -> list[SeatedStages]:
    """The neighbours to simulate."""
    found: list[tuple[float, int, SeatedStages]] = []
    count = MOST_STAGES // seated.num_stages
    for neighbour in islice(_neighbours(search, tables, seated, tried), count):
        cut = None if search.out_of_budget else balanced(neighbour)
        if cut is not None:
            found.append((float(estimated_times(neighbour, cut[None])[0]), len(found), neighbour))
    return [neighbour for _, _, neighbour in sorted(found)[:NUM_SIMULATED]]


def _neighbours(
    search: Search, tables: StageTables, seated: SeatedStages, tried: set[tuple[PlacedGroup, ...]]
) -> Iterator[SeatedStages]:
    """Changed sequences of groups for which there are hosts and devices enough."""
    variant = seated.variant
    cluster = search.costs.of(variant.share).cluster
    runs = runs_of(seated.seats)
    for changed in dict.fromkeys(neighbouring_runs(search.problem, cluster, variant.micro_batch, runs)):
        seats = seats_of(changed)
        if seats and seats not in tried and len(seats) <= tables.num_layers and name_devices(cluster, seats):
            yield SeatedStages(tables, variant, seats)
