"""Neighbourhoods: layers moved between stages, and device groups changed."""

import itertools
from collections.abc import Iterator

import numpy as np

from stagecut.planner.core.arrays import Ints
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.device_groups import PlacedGroup, placements_in_host, placements_on_hosts

LARGE_SHIFTS = (2, 4, 8)
Run = tuple[Placement, ...]
"""Placements of consecutive stages on one host, or of one stage on several hosts."""


def neighbouring_cuts(stops: Ints) -> Ints:
    """Cuts with consecutive boundaries moved by one layer, or one boundary by 2, 4 or 8, either way.

    Moving the boundaries after stages a .. b - 1 takes a layer from one of the stages a and b to the
    other. Empty stages are left out.

    Parameters
    ----------
    stops
        Shape (S,); the last one stays.

    Returns
    -------
    array
        Shape (n, S).
    """
    num_boundaries = len(stops) - 1
    first, last = np.triu_indices(num_boundaries)
    boundary = np.arange(len(stops))
    ranges = (first[:, None] <= boundary) & (boundary <= last[:, None])
    single = np.eye(num_boundaries, len(stops), dtype=bool)
    shifts = np.concatenate([ranges, *(shift * single for shift in LARGE_SHIFTS)])
    cuts = stops + np.concatenate([shifts, -shifts])
    rising: Ints = cuts[(np.diff(cuts, axis=1, prepend=0) > 0).all(axis=1)]
    return rising


def runs_of(seats: tuple[PlacedGroup, ...]) -> tuple[Run, ...]:
    """The placements of a pipeline, host by host."""
    runs: list[list[Placement]] = []
    for seat in seats:
        if seat.opens:
            runs.append([])
        runs[-1].append(seat.placement)
    return tuple(tuple(run) for run in runs)


def seats_of(runs: tuple[Run, ...]) -> tuple[PlacedGroup, ...]:
    """The seats of runs of placements, each run on hosts of its own."""
    return tuple(
        PlacedGroup(placement=placement, opens=number == 0) for run in runs for number, placement in enumerate(run)
    )


def neighbouring_runs(
    problem: Problem, cluster: Cluster, micro_batch: int, runs: tuple[Run, ...]
) -> Iterator[tuple[Run, ...]]:
    """Sequences of runs that differ in one run, in the order of two, or in the place of one.

    Whether there are hosts and devices enough is not looked at.

    Parameters
    ----------
    cluster
        What one pipeline has.
    """
    groups = _Groups(problem, cluster, micro_batch)
    for index, run in enumerate(runs):
        yield (*runs[:index], *runs[index + 1 :])
        yield from ((*runs[:index], changed, *runs[index + 1 :]) for changed in groups.changed_runs(run))
    for first, second in itertools.combinations(range(len(runs)), 2):
        swapped = list(runs)
        swapped[first], swapped[second] = runs[second], runs[first]
        yield tuple(swapped)
    for source, target in itertools.permutations(range(len(runs)), 2):
        others = [*runs[:source], *runs[source + 1 :]]
        yield (*others[:target], runs[source], *others[target:])
    for run in groups.fresh_runs(runs):
        for place in range(len(runs) + 1):
            yield (*runs[:place], run, *runs[place:])


class _Groups:
    """Runs on the hosts of one cluster."""

    def __init__(self, problem: Problem, cluster: Cluster, micro_batch: int) -> None:
        self._problem, self._cluster, self._micro_batch = problem, cluster, micro_batch

    def changed_runs(self, run: Run) -> Iterator[Run]:
        """Turned around; or one or two neighbours in an island replaced by up to two stages on any groups."""
        if run[0].num_hosts > 1:
            return
        yield run[::-1]
        for width, index in itertools.product((1, 2), range(len(run))):
            window = run[index : index + width]
            if len(window) == width and len({placement.island for placement in window}) == 1:
                for stages in self._restaged(window[0]):
                    if changed := (*run[:index], *stages, *run[index + width :]):
                        yield changed

    def fresh_runs(self, runs: tuple[Run, ...]) -> Iterator[Run]:
        """One more host with equal groups, or several whole ones as one stage."""
        for index, server in enumerate(self._cluster.servers):
            left = server.count - sum(run[0].num_hosts for run in runs if run[0].server_class == index)
            for island, group in enumerate(server.islands if left else ()):
                for placement in self._on_island(index, island, group.count):
                    yield (placement,) * (group.count // placement.devices_per_host)
            for num_hosts in range(2, left + 1):
                for placement in placements_on_hosts(
                    self._problem,
                    self._cluster,
                    server_class=index,
                    num_hosts=num_hosts,
                    micro_batch=self._micro_batch,
                ):
                    yield (placement,)

    def _restaged(self, placement: Placement) -> Iterator[Run]:
        """No stage, one, or two on the island of a placement."""
        where = placement.server_class, placement.island
        count = self._cluster.servers[placement.server_class].islands[placement.island].count
        yield ()
        for first in self._on_island(*where, count):
            yield (first,)
            yield from ((first, second) for second in self._on_island(*where, count - first.devices_per_host))

    def _on_island(self, server_class: int, island: int, free: int) -> Iterator[Placement]:
        return placements_in_host(
            self._problem, server_class=server_class, island=island, free=free, micro_batch=self._micro_batch
        )
