"""Cuts of the layers over a given sequence of device groups that make the slowest stage as fast as possible."""

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.tolerances import ALMOST_ZERO, PREFIX_ROUNDING
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts

ROUNDS, ATTEMPTS = 4, 32
"""32 limits are tried at once, four times, each time closer; with three, one of 12 plans is 8 % slower."""


def min_max_stops(sequence: SequenceCosts) -> Ints | None:
    """Stops of the cut with the fastest slowest stage, shape (S,); None if memory or layers do not suffice.

    From the last stage to the first, each is filled up to a common limit on its time per micro-batch,
    or up to its memory; a search over limits finds the smallest one with which the first stage
    reaches layer 0. So stages get layers in proportion to their speed, and fewer where memory is short.
    """
    # From work shared in proportion to speed up to all layers on the slowest stage, recomputed: 2 F + B <= 2 (F + B).
    all_s = np.maximum(sequence.work_s[:, -1], ALMOST_ZERO)
    low_s, high_s = 1 / np.sum(1 / all_s), 2 * float(all_s.max()) + 2 * float(sequence.transfer_s.sum())
    best, _ = _smallest(sequence, np.array([np.inf]))
    for _ in range(ROUNDS if best is not None else 0):
        limits_s = np.geomspace(low_s, high_s, ATTEMPTS)
        stops, index = _smallest(sequence, limits_s)
        if stops is None:
            break
        best, low_s, high_s = stops, limits_s[max(0, index - 1)], limits_s[index]
    return best


def work_limits(schedule: Schedule, limits_s: Floats, transfer_s: Floats) -> Floats:
    """How long a stage may compute per micro-batch if it also sends a message of `transfer_s` seconds.

    From the pair rows of :mod:`stagecut.planner.simulator.bounds` for stages that take w seconds and send messages of c
    seconds: w + c per micro-batch under 1F1B, max(w, c, 2/3 (w + c)) under eager 1F1B; and from the flush row at least
    max(w, 2 c) under GPipe. Shapes broadcast; negative where the message alone takes too long.
    """
    if schedule is Schedule.ONE_F_ONE_B:
        return limits_s - transfer_s
    if schedule is Schedule.EAGER_ONE_F_ONE_B:
        return np.where(transfer_s <= limits_s, np.minimum(limits_s, 1.5 * limits_s - transfer_s), -1.0)
    return np.where(2 * transfer_s <= limits_s, limits_s, -1.0)


def earliest_starts(
    work_s: Floats, forward_s: Floats, stop: Ints, limits_s: Floats, *, plain_start: Ints, recomputing_start: Ints
) -> Ints:
    """The first layer of a stage that ends at each stop, within its time limit and memory, recomputing if that helps.

    Parameters
    ----------
    work_s, forward_s
        F + B and F of the layers before each boundary, shape (L + 1,).
    plain_start, recomputing_start
        For each stop, the first start that fits in memory without and with recomputation.
    """

    return np.minimum(
        np.maximum(starts_within(work_s, stop, limits_s), plain_start),
        np.maximum(starts_within(work_s + forward_s, stop, limits_s), recomputing_start),
    )


def starts_within(before_s: Floats, stop: Ints, limits_s: Floats) -> Ints:
    """The first layer of a stage that ends at each stop, from the seconds of the layers before each boundary."""
    starts: Ints = np.searchsorted(before_s, before_s[stop] - limits_s - PREFIX_ROUNDING * before_s[-1])
    return starts


def _smallest(sequence: SequenceCosts, limits_s: Floats) -> tuple[Ints | None, int]:
    """Stops under the smallest limit that suffices, and the index of that limit."""
    cuts = _filled(sequence, limits_s)
    good = np.flatnonzero((cuts[0] == 0) & (np.diff(cuts, axis=0) > 0).all(axis=0))
    return (cuts[1:, good[0]], int(good[0])) if len(good) else (None, 0)


def _filled(sequence: SequenceCosts, limits_s: Floats) -> Ints:
    """Boundaries between stages under each limit, shape (S + 1, limits).

    Every stage leaves a layer for each of those before it. Where a limit is too small, the first
    boundary is above 0 or a stage is empty.
    """
    cuts = np.full((sequence.num_stages + 1, len(limits_s)), sequence.num_layers)
    for stage in range(sequence.num_stages - 1, -1, -1):
        stop = cuts[stage + 1]
        sends = stage < sequence.num_stages - 1
        transfer_s = sequence.transfer_s[stage].take(stop) if sends else np.zeros(len(limits_s))
        start = earliest_starts(
            sequence.work_s[stage],
            sequence.forward_s[stage],
            stop,
            work_limits(sequence.variant.schedule, limits_s, transfer_s),
            plain_start=sequence.plain_start[stage].take(stop),
            recomputing_start=sequence.recomputing_start[stage].take(stop),
        )
        cuts[stage] = np.clip(start, min(stage, sequence.num_layers), stop)
    return cuts
