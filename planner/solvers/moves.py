"""Neighbourhoods of a layout: layers moved between stages, and device groups changed.

Moves of layers keep the groups. Moves of groups change the sequence of seats, and cut the layers
anew by :class:`planner.solvers.balance.Balancer`.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from planner.core.placement import Placement
from planner.core.problem import Problem, Variant
from planner.network.layout import Layout
from planner.network.seating import Seat, seat_stages
from planner.solvers.balance import Balancer
from planner.solvers.local_search import Move

SHIFTS = (1, 2, 4, 8)
Run = tuple[Placement, ...]
"""Placements of consecutive stages on one host, or of one stage on several hosts."""


def shift_boundary(layout: Layout) -> Iterator[Layout]:
    """One boundary moved by 1, 2, 4 or 8 layers either way."""
    for index in range(len(layout) - 1):
        for shift in SHIFTS:
            yield from _moved(layout, index, index + 1, shift)
            yield from _moved(layout, index, index + 1, -shift)


def shift_two_boundaries(layout: Layout) -> Iterator[Layout]:
    """One layer from any stage to any other, the stages between shifted along."""
    for first, last in itertools.combinations(range(len(layout)), 2):
        if last > first + 1:
            yield from _moved(layout, first, last, 1)
            yield from _moved(layout, first, last, -1)


LAYER_MOVES: tuple[Move, ...] = (shift_boundary, shift_two_boundaries)


def group_moves(problem: Problem, variant: Variant, balancer: Balancer) -> tuple[Move, ...]:
    """Moves that change which device groups are used, in which order."""

    def move(layout: Layout) -> Iterator[Layout]:
        for runs in dict.fromkeys(_neighbouring_runs(problem, variant, runs_of(layout))):
            seats = seats_of(runs)
            balanced = balancer.layout(seats) if seats and seat_stages(problem.cluster, seats) else None
            if balanced is not None:
                yield balanced

    return (move,)


def runs_of(layout: Layout) -> tuple[Run, ...]:
    """The placements of a layout, host by host."""
    runs: list[list[Placement]] = []
    for block in layout:
        if block.opens:
            runs.append([])
        runs[-1].append(block.placement)
    return tuple(tuple(run) for run in runs)


def seats_of(runs: tuple[Run, ...]) -> tuple[Seat, ...]:
    """The seats of runs of placements, each run on hosts of its own."""
    return tuple(Seat(placement=placement, opens=number == 0) for run in runs for number, placement in enumerate(run))


def _moved(layout: Layout, first: int, last: int, layers: int) -> Iterator[Layout]:
    """The boundaries after stages first .. last - 1 moved by that many layers, if every stage keeps one."""
    blocks = (
        replace(block, stop=block.stop + layers) if first <= index < last else block
        for index, block in enumerate(layout)
    )
    changed = tuple(blocks)
    stops = [0, *(block.stop for block in changed)]
    if all(before < after for before, after in itertools.pairwise(stops)):
        yield changed


def _neighbouring_runs(problem: Problem, variant: Variant, runs: tuple[Run, ...]) -> Iterator[tuple[Run, ...]]:
    for index, run in enumerate(runs):
        yield (*runs[:index], *runs[index + 1 :])
        yield from ((*runs[:index], changed, *runs[index + 1 :]) for changed in _changed_run(problem, variant, run))
    for first, second in itertools.combinations(range(len(runs)), 2):
        swapped = list(runs)
        swapped[first], swapped[second] = runs[second], runs[first]
        yield tuple(swapped)
    for source, target in itertools.permutations(range(len(runs)), 2):
        others = [*runs[:source], *runs[source + 1 :]]
        yield (*others[:target], runs[source], *others[target:])
    yield from _with_fresh_host(problem, variant, runs)


def _changed_run(problem: Problem, variant: Variant, run: Run) -> Iterator[Run]:
    """Turned around; or one or two neighbours in an island replaced by up to two stages of any replicas."""
    if run[0].num_hosts > 1:
        return
    yield run[::-1]
    for width, index in itertools.product((1, 2), range(len(run))):
        window = run[index : index + width]
        if len(window) == width and len({placement.island for placement in window}) == 1:
            for stages in _restaged(problem, variant, window[0]):
                changed = (*run[:index], *stages, *run[index + width :])
                if changed:
                    yield changed


def _restaged(problem: Problem, variant: Variant, placement: Placement) -> Iterator[Run]:
    """No stage, one, or two on the island of a placement."""
    count = problem.cluster.servers[placement.server_class].islands[placement.island].count
    yield ()
    for replicas in _allowed(problem, variant, count):
        first = replace(placement, replicas=replicas)
        yield (first,)
        for others in _allowed(problem, variant, count - replicas):
            yield (first, replace(placement, replicas=others))


def _with_fresh_host(problem: Problem, variant: Variant, runs: tuple[Run, ...]) -> Iterator[tuple[Run, ...]]:
    """One more host, or several whole ones as one stage, anywhere in the pipeline."""
    for index, server in enumerate(problem.cluster.servers):
        used = sum(run[0].num_hosts for run in runs if run[0].server_class == index)
        fresh = [
            (Placement(server_class=index, island=island, replicas=replicas),) * (group.count // replicas)
            for island, group in enumerate(server.islands)
            for replicas in _allowed(problem, variant, group.count)
            if used < server.count
        ]
        if len(server.islands) == 1:
            fresh += [
                (Placement(server_class=index, island=0, num_hosts=hosts, replicas=hosts * server.num_devices),)
                for hosts in range(2, server.count - used + 1)
                if problem.job.allows_replicas(hosts * server.num_devices, variant.micro_batch)
            ]
        for run in fresh:
            for place in range(len(runs) + 1):
                yield (*runs[:place], run, *runs[place:])


def _allowed(problem: Problem, variant: Variant, most: int) -> list[int]:
    return [count for count in range(1, most + 1) if problem.job.allows_replicas(count, variant.micro_batch)]
