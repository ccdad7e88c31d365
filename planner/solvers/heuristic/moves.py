"""Neighbourhoods of a plan: layers moved between stages, and device groups changed."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.device_groups import (
    PlacedGroup,
    name_devices,
    placements_in_host,
    placements_on_whole_hosts,
)

LARGE_SHIFTS = (2, 4, 8)
"""Layers by which one boundary moves at once, besides 1; without them, 10 of 11 plans are 1 to 14 % slower."""
MANY_BOUNDARIES, NUM_WIDTHS = 40, 12
"""Of more boundaries than this, only so many numbers of consecutive ones move at once: on drawn problem 48 (78 stages)
`greedy` takes 17 s instead of 38, and its plan is 0.03 % faster. Short ranges alone: plans up to 5 % slower."""
Run = tuple[Placement, ...]
"""Placements of consecutive stages on one host, or of one stage on several hosts."""


def neighbouring_cuts(stops: Ints) -> Ints:
    """Cuts with consecutive boundaries moved by one layer, or one boundary by 2, 4 or 8, either way; shape (n, S).

    Moving the boundaries after stages a .. b - 1 moves one layer between stages a and b; in long pipelines only
    some b - a are tried. The last of the stops, shape (S,), stays. Cuts with empty stages are left out.
    """
    num_boundaries = len(stops) - 1
    first, last = np.triu_indices(num_boundaries)
    if num_boundaries > MANY_BOUNDARIES:
        some = np.isin(last - first + 1, np.geomspace(1, num_boundaries, NUM_WIDTHS).astype(int))
        first, last = first[some], last[some]
    boundary = np.arange(len(stops))
    ranges = (first[:, None] <= boundary) & (boundary <= last[:, None])
    single = np.eye(num_boundaries, len(stops), dtype=bool)
    shifts = np.concatenate([ranges, *(shift * single for shift in LARGE_SHIFTS)])
    cuts = stops + np.concatenate([shifts, -shifts])
    rising: Ints = cuts[(np.diff(cuts, axis=1, prepend=0) > 0).all(axis=1)]
    return rising


def runs_of(groups: tuple[PlacedGroup, ...]) -> tuple[Run, ...]:
    """The placements of a pipeline, host by host."""
    runs: list[Run] = []
    for group in groups:
        if group.opens:
            runs.append(())
        runs[-1] += (group.placement,)
    return tuple(runs)


def groups_of(runs: Iterable[Run]) -> tuple[PlacedGroup, ...]:
    """The device groups of a pipeline, each run on hosts of its own."""
    return tuple(
        PlacedGroup(placement=placement, opens=number == 0) for run in runs for number, placement in enumerate(run)
    )


def suffice(cluster: Cluster, num_layers: int, groups: tuple[PlacedGroup, ...]) -> bool:
    """Whether there are stages, and hosts, devices and layers enough for them."""
    return 0 < len(groups) <= num_layers and name_devices(cluster, groups) is not None


def neighbouring_runs(
    problem: Problem, cluster: Cluster, micro_batch: int, runs: tuple[Run, ...]
) -> Iterator[tuple[Run, ...]]:
    """Sequences of runs that differ in one run, in the order of two, or in the position of one.

    They may need more hosts or devices than the cluster, the share of one pipeline, has.
    """
    hosts = _Runs(problem, cluster, micro_batch)
    for index, run in enumerate(runs):
        yield (*runs[:index], *runs[index + 1 :])
        yield from ((*runs[:index], changed, *runs[index + 1 :]) for changed in hosts.changed(run))
        if runs[max(0, index - 1) : index + 2] != (run, run, run):  # the first or last of equal ones
            yield from ((*runs[:index], *others, *runs[index + 1 :]) for others in hosts.regrouped(run))
    for first, second in itertools.combinations(range(len(runs)), 2):
        swapped = list(runs)
        swapped[first], swapped[second] = runs[second], runs[first]
        yield tuple(swapped)
    for source, target in itertools.permutations(range(len(runs)), 2):
        others = [*runs[:source], *runs[source + 1 :]]
        yield (*others[:target], runs[source], *others[target:])
    for run in hosts.fresh(runs):
        for place in range(len(runs) + 1):
            yield (*runs[:place], run, *runs[place:])


def random_change(
    problem: Problem, cluster: Cluster, micro_batch: int, runs: tuple[Run, ...], random: np.random.Generator
) -> tuple[Run, ...]:
    """Runs of which one is changed, alone or with all its equals, moved or copied, or two are swapped, or one is added.

    All kinds of moves are equally likely; the same runs where there is none of the kind drawn. They may need more hosts
    or devices than the cluster has.
    """
    hosts, (first, second) = _Runs(problem, cluster, micro_batch), random.integers(len(runs), size=2).tolist()
    run, others = runs[first], (*runs[:first], *runs[first + 1 :])
    match random.integers(6):
        case 0:
            changes = [*((changed,) for changed in hosts.changed(run)), *hosts.regrouped(run)]
            return (*runs[:first], *changes[random.integers(len(changes))], *runs[first + 1 :]) if changes else runs
        case 1:
            alike = list(hosts.changed(run))
            changed = alike[random.integers(len(alike))] if alike else run
            return tuple(changed if other == run else other for other in runs)
        case 2:
            return (*others[:second], run, *others[second:])
        case 3:
            return (*runs[:second], run, *runs[second + 1 :])
        case 4:
            swapped = {first: runs[second], second: run}
            return tuple(swapped.get(index, other) for index, other in enumerate(runs))
        case _:
            fresh, place = list(hosts.fresh(runs)), random.integers(len(runs) + 1)
            return (*runs[:place], fresh[random.integers(len(fresh))], *runs[place:]) if fresh else runs


class _Runs:
    """Runs on the hosts of one cluster."""

    def __init__(self, problem: Problem, cluster: Cluster, micro_batch: int) -> None:
        self._problem, self._cluster, self._micro_batch = problem, cluster, micro_batch

    def changed(self, run: Run) -> Iterator[Run]:
        """The run reversed, or one or two neighbours on an island replaced by up to two stages on any groups."""
        if run[0].num_hosts > 1:
            return
        yield run[::-1]
        for width, index in itertools.product((1, 2), range(len(run))):
            window = run[index : index + width]
            if len(window) == width and len({placement.island for placement in window}) == 1:
                for stages in self._restaged(window[0]):
                    if changed := (*run[:index], *stages, *run[index + width :]):
                        yield changed

    def regrouped(self, run: Run) -> Iterator[tuple[Run, ...]]:
        """The several hosts of one stage with another one, or with two."""
        if (num_hosts := run[0].num_hosts) == 1:
            return
        parts = list(self._whole(run[0].server_class, num_hosts))
        yield from ((part,) for part in parts)
        for first, second in itertools.product(parts, repeat=2):
            if first[0].num_hosts + second[0].num_hosts <= num_hosts:
                yield first, second

    def fresh(self, runs: tuple[Run, ...]) -> Iterator[Run]:
        """One more host filled with equal groups, or several whole hosts as one stage."""
        for index, server in enumerate(self._cluster.servers):
            left = server.count - sum(run[0].num_hosts for run in runs if run[0].server_class == index)
            if left:
                yield from self._filled(index)
            yield from self._whole(index, left)

    def _filled(self, server_class: int) -> Iterator[Run]:
        """A host with one of its islands filled with equal groups."""
        for island, group in enumerate(self._cluster.servers[server_class].islands):
            for placement in self._on_island(server_class, island, group.count):
                yield (placement,) * (group.count // placement.devices_per_host)

    def _whole(self, server_class: int, most: int) -> Iterator[Run]:
        """One stage on 2 to `most` whole hosts."""
        for placement in placements_on_whole_hosts(
            self._problem, self._cluster, server_class=server_class, most=most, micro_batch=self._micro_batch
        ):
            yield (placement,)

    def _restaged(self, placement: Placement) -> Iterator[Run]:
        """No stage, one or two on the island of a placement."""
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
