"""The least largest row of a device group, over all cuts of a shape with two chunks: a shortest path.

Device group d of D holds the stages d and D + d. Walk back over the device groups with both cuts at once: in front of
the last ones, the first chunk has got down to layer i and the second, which starts at layer m, down to layer j. Sums of
forwards and backwards before a stage are sums over the layers before it, so with the least transfers possible the busy
and sync rows of a device group (:mod:`stagecut.planner.simulator.interleaved_bounds`) follow from one step of the walk;
its fill, drain and home rows follow from that and the times known behind it. The largest row of a walk from (m, L) to
(0, m) is least for a walk that bounds all cuts. Unlike a relaxation it does not divide layers. A walk with a small row
may have a late end or a busy link where another one has not, so each state keeps a few labels, none better than another
one in every way.
"""

import math
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.numerics.tolerances import PATH_SUM, PREFIX_SUM
from stagecut.planner.solvers.interleaved.costs import ChunkCosts
from stagecut.planner.solvers.interleaved.walk_labels import (
    MOST_LABELS,
    NUM_TIMES,
    ROW,
    States,
    add_group,
    any_below,
    keep,
    own_times,
)
from stagecut.planner.solvers.interleaved.walk_tables import Tables, first_fitting, tables_of
from stagecut.planner.solvers.search.options import StopCheck

PARTS = (1.01, 1.03, 1.1, 1.3)
"""Limits to try first, relative to the work of the mean device group."""
FEW_STEPS, MOST_STEPS = 1_000_000, 100_000_000
"""Choices of layers for a device group, and labels that go on with one, looked at: some ten million a second."""
MOST_ORIGINS = 50_000_000
"""Where labels come from, four bytes each (memory)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestWalk:
    """The walk of the least largest row."""

    bound_s: float
    """No cut has smaller rows, except those that reach the limit."""
    stops: Ints | None
    """Its cut, shape (S,); None if every walk reaches the limit."""


def best_walk(
    chunks: ChunkCosts,
    limit_s: float,
    *,
    stop: StopCheck,
    most_steps: int = MOST_STEPS,
    most_labels: int = MOST_LABELS,
) -> BestWalk | None:
    """The best walk below a limit; None if stopped, or if it takes too many steps or too much memory."""
    num_groups = chunks.shape.num_groups
    if num_groups * (chunks.num_layers // 2 + 1) ** 2 * most_labels > MOST_ORIGINS:
        return None
    tables = tables_of(chunks)
    work_s = tables.work_s
    middles = np.arange(num_groups, chunks.num_layers - num_groups + 1)
    # Even halves first: the better the best walk so far, the sooner others end.
    middles = middles[np.argsort(np.abs(2 * work_s[middles] - work_s[-1]), kind="stable")]
    if tables.static_bytes[:, -1].min() > num_groups * tables.limit_bytes:
        return BestWalk(bound_s=limit_s, stops=None)
    most_s = limit_s * (1 + PATH_SUM)
    # The nearer the limit, the fewer walks: a low one first, which leaves none unless the cut is even.
    mean_s = float(work_s[-1]) / num_groups
    for part in (*PARTS, math.inf):
        best_s, stops = min(most_s, part * mean_s) if mean_s > 0 else most_s, None
        for middle in middles.tolist():
            seconds, found, num_steps = _walk(tables, middle, best_s, most_steps, most_labels)
            most_steps -= num_steps
            if stop() or most_steps < 0:
                return None
            if seconds < best_s:
                best_s, stops = seconds, found
        if stops is not None or best_s >= most_s:
            break
    return BestWalk(bound_s=min(limit_s, best_s * (1 - PATH_SUM)), stops=stops)


@compiled
def _walk(of: Tables, middle: int, limit_s: float, most_steps: int, most_labels: int) -> tuple[float, Ints, int]:
    """The least largest row of the walks from (middle, L) to (0, middle) below a limit, their stops, and the steps."""
    size, last = of.num_groups, len(of.forward_s) - 1
    width = last - middle + 1
    labels = np.empty((2, middle + 1, width, most_labels, NUM_TIMES))
    counts = np.zeros((2, middle + 1, width), dtype=np.int64)
    origins = np.zeros((size, middle + 1, width, most_labels), dtype=np.int32)
    labels[size % 2, middle, -1, 0] = -np.inf
    counts[size % 2, middle, -1] = 1
    num_steps = 0
    for group in range(size - 1, -1, -1):
        later = size - 1 - group  # Device groups after this one; each has a layer of both chunks.
        behind = (group + 1) % 2
        counts[1 - behind] = 0
        front = States(labels[1 - behind], counts[1 - behind], origins[group])
        for stop in range(middle - later, group, -1):
            for stop2 in range(last - later, middle + group, -1):
                reached = labels[behind, stop, stop2 - middle, : counts[behind, stop, stop2 - middle]]
                if len(reached) > 0 and num_steps <= most_steps:
                    num_steps += _step(of, group, stop, stop2, middle, limit_s, reached, front)
    stops = np.zeros(2 * size, dtype=np.int64)
    if counts[0, 0, 0] == 0:
        return np.inf, stops, num_steps
    label = np.argmin(labels[0, 0, 0, : counts[0, 0, 0], ROW])
    row_s, first, second = labels[0, 0, 0, label, ROW], 0, 0
    for group in range(size):
        state, label = divmod(origins[group, first, second, label], most_labels)
        first, second = divmod(state, width)
        stops[group], stops[size + group] = first, second + middle
    return row_s, stops, num_steps


@compiled
def _step(
    of: Tables,
    group: int,
    stop: int,
    stop2: int,
    middle: int,
    limit_s: float,
    reached: Floats,
    front: States,
) -> int:
    """Try every choice of layers for one device group whose stages stop at these; returns how many.

    `reached` are the labels there, shape (n, times).
    """
    num_steps, width, label = 0, len(of.forward_s) - middle, np.empty(NUM_TIMES)
    work_s = of.work_s
    for start in range(stop - 1 if group else 0, group - 1, -1):
        # With the way to the first stage and home.
        own_s = work_s[stop] - work_s[start] + of.forward_s[start] + of.backward_s[start]
        if own_s >= limit_s:
            break
        for start2 in range(stop2 - 1 if group else middle, middle + group - 1, -1):
            if own_s + work_s[stop2] - work_s[start2] >= limit_s:
                break
            num_steps += 1
            if (work_s[start] + work_s[start2] - work_s[middle]) * (1 - PREFIX_SUM) > group * limit_s:
                continue
            own = own_times(of, group, 0, start, stop, start2, stop2)
            if own.row_s >= limit_s:
                continue
            num_steps += len(reached)
            if not any_below(own, reached, limit_s):
                continue
            mode = first_fitting(of, group, start, stop, start2, stop2)
            if mode < 0:
                break  # More layers do not fit either.
            if mode > 0:
                own = own_times(of, group, mode, start, stop, start2, stop2)
            for index in range(len(reached)):
                add_group(own, reached[index], label)
                if label[ROW] < limit_s:
                    origin = (stop * width + stop2 - middle) * front.labels.shape[2] + index
                    keep(front, start, start2 - middle, label, origin)
    return num_steps
