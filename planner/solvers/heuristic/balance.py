"""Layers for a given sequence of device groups, so that the slowest stage is as fast as possible."""

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.heuristic.seated import SeatedStages

ROUNDS, ATTEMPTS = 4, 32
"""Limits are tried 32 at once, four times over, from even shares to all layers on the slowest group."""
TOLERANCE = 1e-12
"""Relative to the work of all layers: sums of the same layers in another order."""
LEAST_S = 1e-300
"""Stands for no time at all: so large that a sum of inverses is finite."""


def balanced(seated: SeatedStages) -> Ints | None:
    """Stops of the balanced cut, shape (S,); None if memory or layers do not suffice for all stages.

    From the last stage to the first, every one is filled up to a common limit of its time per
    micro-batch, or up to its memory; the smallest limit with which the first one comes to layer 0
    is found by trying. So stages get layers in proportion to their speed, and less where memory is
    short.
    """
    all_s = np.maximum(seated.work_s[:, -1], LEAST_S)
    low_s, high_s = 1 / np.sum(1 / all_s), 2 * float(all_s.max()) + 2 * float(seated.transfer_s.sum())
    best, _ = _smallest(seated, np.array([np.inf]))
    for _ in range(ROUNDS if best is not None else 0):
        limits_s = np.geomspace(low_s, high_s, ATTEMPTS)
        stops, index = _smallest(seated, limits_s)
        if stops is None:
            break
        best, low_s, high_s = stops, limits_s[max(0, index - 1)], limits_s[index]
    return best


def work_limits(schedule: Schedule, limits_s: Floats, transfer_s: Floats) -> Floats:
    """How long stages may compute per micro-batch that each have a message of so many seconds to send.

    From the pair rows of :mod:`planner.simulator.bounds` for stages that take equally long, w each,
    and send messages of c seconds: w + c per micro-batch under 1F1B, max(w, c, 2/3 (w + c)) under
    eager 1F1B; and from the flush row at least max(w, 2 c) under GPipe. Shapes by broadcasting,
    negative where the message alone takes too long.
    """
    if schedule is Schedule.ONE_F_ONE_B:
        return limits_s - transfer_s
    if schedule is Schedule.EAGER_ONE_F_ONE_B:
        return np.where(transfer_s <= limits_s, np.minimum(limits_s, 1.5 * limits_s - transfer_s), -1.0)
    return np.where(2 * transfer_s <= limits_s, limits_s, -1.0)


def _smallest(seated: SeatedStages, limits_s: Floats) -> tuple[Ints | None, int]:
    """Stops under the smallest limit that suffices, and which one that is."""
    cuts = _filled(seated, limits_s)
    good = np.flatnonzero((cuts[0] == 0) & (np.diff(cuts, axis=0) > 0).all(axis=0))
    return (cuts[1:, good[0]], int(good[0])) if len(good) else (None, 0)


def _filled(seated: SeatedStages, limits_s: Floats) -> Ints:
    """Boundaries between stages under each limit, shape (S + 1, limits).

    Every stage leaves a layer for each of those before it. Where a limit is too small, the first
    boundary is above 0 or a stage is empty.
    """
    cuts = np.full((seated.num_stages + 1, len(limits_s)), seated.num_layers)
    for stage in range(seated.num_stages - 1, -1, -1):
        stop = cuts[stage + 1]
        sends = stage < seated.num_stages - 1
        transfer_s = seated.transfer_s[stage].take(stop) if sends else np.zeros(len(limits_s))
        limit_s = work_limits(seated.variant.schedule, limits_s, transfer_s)
        plain = _first_starts(seated.work_s[stage], stop, limit_s)
        recomputing = _first_starts(seated.work_s[stage] + seated.forward_s[stage], stop, limit_s)
        start = np.minimum(
            np.maximum(plain, seated.plain_start[stage].take(stop)),
            np.maximum(recomputing, seated.recomputing_start[stage].take(stop)),
        )
        cuts[stage] = np.clip(start, min(stage, seated.num_layers), stop)
    return cuts


def _first_starts(work_s: Floats, stop: Ints, limit_s: Floats) -> Ints:
    """The first layer from which the work up to each stop keeps to each limit."""
    starts: Ints = np.searchsorted(work_s, work_s[stop] - limit_s - TOLERANCE * work_s[-1])
    return starts
