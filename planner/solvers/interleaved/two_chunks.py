"""The least largest row of a device group, over all cuts of a shape with two chunks: a shortest path.

Device group d of D holds the stages d and D + d. Walk back over the device groups with both cuts at once: in front of
the last ones, the first chunk has got down to layer i and the second, which starts at layer m, down to layer j. Sums of
forwards and backwards before a stage are sums over the layers before it, so with the least transfers possible the busy,
sync, fill and drain rows of a device group (:mod:`stagecut.planner.simulator.interleaved_bounds`) follow from one step
of the walk, and so does the home row from the times known behind it. The largest row of a walk from (m, L) to (0, m) is
least for a walk that bounds all cuts. Unlike a relaxation it does not divide layers. A walk with a small row may have
a late end or a busy link where another one has not, so each state keeps a few labels, none better than another one in
every way.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.numerics.tolerances import MEMORY_ROUNDING, PATH_SUM, PREFIX_SUM
from stagecut.planner.solvers.interleaved.costs import ChunkCosts, Cost
from stagecut.planner.solvers.search.options import StopCheck

PARTS = (1.01, 1.03, 1.1, 1.3)
"""Limits to try first, relative to the work of the mean device group."""
FEW_STEPS, MOST_STEPS = 1_000_000, 100_000_000
"""Choices of layers for a device group that are looked at, some ten million a second."""
MOST_LABELS = 8
"""Labels of a state; with more, those nearest to each other become one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestWalk:
    """The walk of the least largest row."""

    bound_s: float
    """No cut has smaller rows, except those that reach the limit."""
    stops: Ints | None
    """Its cut, shape (S,); None if every walk reaches the limit."""


class _Tables(NamedTuple):
    """What the rows are made of; sums over the layers before each boundary have shape (L + 1,)."""

    num_groups: int
    num_microbatches: float
    work_s: Floats
    """M (F + B)."""
    forward_s: Floats
    backward_s: Floats
    """In the first mode, the fastest."""
    backward_in_mode_s: Floats
    """Shape (modes, L + 1)."""
    tail_s: Floats
    tail_offset_s: float
    """Of each stage."""
    sync_s: Floats
    sync_offset_s: float
    """Of each stage."""
    transfer_s: Floats
    """Behind each stage, by where it stops, shape (S, L + 1)."""
    queues: Ints
    """Whether the all-reduces of a device group take the link of those of the one before it, shape (D,).

    0: no; 1: yes; 2: and the first of them are served before the last gradient that leaves the link.
    """
    transfers_before_s: Floats
    """The least before a stage that starts at a layer, shape (S + 1, L + 1)."""
    transfers_behind_s: Floats
    """The least behind that boundary, shape (S + 1, L + 1)."""
    work_before: Floats
    """Forwards and backwards of both chunks before the first backward of a stage, shape (D, 2, 4)."""
    static_bytes: Floats
    """Shape (modes, L + 1), like the next."""
    saved_bytes: Floats
    working_bytes: Floats
    """Shape (modes, L + 1, L + 1)."""
    held: Floats
    """Micro-batches of both chunks held during an action, and the chunk of that, shape (n, 3)."""
    first_held: Ints
    """Where those of each device group begin, shape (D + 1,)."""
    limit_bytes: float


def best_walk(chunks: ChunkCosts, limit_s: float, *, stop: StopCheck, most_steps: int = MOST_STEPS) -> BestWalk | None:
    """The best walk below a limit; None if stopped, or if it takes too many steps."""
    tables, num_groups = _tables(chunks), chunks.shape.num_groups
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
            seconds, found, num_steps = _walk(tables, middle, best_s, most_steps)
            most_steps -= num_steps
            if stop() or most_steps < 0:
                return None
            if seconds < best_s:
                best_s, stops = seconds, found
        if stops is not None or best_s >= most_s:
            break
    return BestWalk(bound_s=min(limit_s, best_s * (1 - PATH_SUM)), stops=stops)


def _tables(chunks: ChunkCosts) -> _Tables:
    shape, prefix = chunks.shape, np.ascontiguousarray(chunks.prefix.swapaxes(0, 1))
    before_s, behind_s = _least_transfers(chunks.transfer_s)
    counts = np.concatenate(shape.order.before_first_backward, axis=2).swapaxes(0, 1)
    held, first_held = chunks.most_held()
    return _Tables(
        num_groups=shape.num_groups,
        num_microbatches=float(shape.variant.num_microbatches),
        work_s=shape.variant.num_microbatches * (prefix[Cost.FORWARD, 0] + prefix[Cost.BACKWARD, 0]),
        forward_s=prefix[Cost.FORWARD, 0],
        backward_s=prefix[Cost.BACKWARD, 0],
        backward_in_mode_s=prefix[Cost.BACKWARD],
        tail_s=prefix[Cost.TAIL, 0],
        tail_offset_s=float(chunks.offset[Cost.TAIL]),
        sync_s=prefix[Cost.SYNC, 0],
        sync_offset_s=float(chunks.offset[Cost.SYNC]),
        transfer_s=chunks.transfer_s,
        queues=chunks.queues,
        transfers_before_s=before_s,
        transfers_behind_s=behind_s,
        work_before=np.ascontiguousarray(counts, dtype=float),
        static_bytes=prefix[Cost.STATIC],
        saved_bytes=prefix[Cost.SAVED],
        working_bytes=chunks.working_bytes,
        held=held,
        first_held=first_held,
        limit_bytes=float(chunks.limit_bytes * (1 + MEMORY_ROUNDING)),
    )


def _least_transfers(transfer_s: Floats) -> tuple[Floats, Floats]:
    """Least sums of the transfers before and behind the start of each stage at each layer, shape (S + 1, L + 1)."""
    num_stages, size = transfer_s.shape
    before_s, behind_s = np.full((2, num_stages + 1, size), np.inf)
    before_s[0, 0] = behind_s[num_stages, -1] = 0.0
    for stage in range(num_stages):
        before_s[stage + 1, 1:] = np.minimum.accumulate(before_s[stage])[:-1] + transfer_s[stage, 1:]
    for stage in range(num_stages - 1, -1, -1):
        onward_s = behind_s[stage + 1] + transfer_s[stage]
        behind_s[stage, :-1] = np.minimum.accumulate(onward_s[:0:-1])[::-1]
    return before_s, behind_s


ROW, END, FIRST_FREE, FREE = range(4)
"""Of a label: the least times of walks to a state, in seconds from the start of the iteration.

ROW: the largest busy, sync, fill, drain or home row of the device groups so far; END: the end of the last backward of
the first of them; FIRST_FREE: when its link has served the first all-reduces, from the last device group on it down to
this one, minus infinity where the last gradient that leaves the link does not wait for them; FREE: when its link has
served all the all-reduces of these.
"""


@compiled
def _walk(of: _Tables, middle: int, limit_s: float, most_steps: int) -> tuple[float, Ints, int]:
    """The least largest row of the walks from (middle, L) to (0, middle) below a limit, their stops, and the steps."""
    size, last = of.num_groups, len(of.forward_s) - 1
    width = last - middle + 1
    labels = np.empty((2, middle + 1, width, MOST_LABELS, 4))
    num_labels = np.zeros((2, middle + 1, width), dtype=np.int64)
    came_from = np.zeros((size + 1, middle + 1, width, MOST_LABELS), dtype=np.int32)
    labels[size % 2, middle, -1, 0] = -np.inf
    num_labels[size % 2, middle, -1] = 1
    num_steps = 0
    for group in range(size - 1, -1, -1):
        later = size - 1 - group  # Device groups after this one; each has a layer of both chunks.
        behind, found = (group + 1) % 2, group % 2
        num_labels[found] = 0
        into = labels[found], num_labels[found], came_from[group]
        for stop in range(middle - later, group, -1):
            for stop2 in range(last - later, middle + group, -1):
                at = stop, stop2 - middle
                if num_labels[behind][at] > 0 and num_steps <= most_steps:
                    reached = labels[behind][at][: num_labels[behind][at]]
                    num_steps += _step(of, group, stop, stop2, middle, limit_s, reached, into)
    stops = np.zeros(2 * size, dtype=np.int64)
    if num_labels[0, 0, 0] == 0:
        return np.inf, stops, num_steps
    best = np.argmin(labels[0, 0, 0, : num_labels[0, 0, 0], ROW])
    first, second, label = 0, 0, best
    for group in range(size):
        stop, label = divmod(came_from[group, first, second, label], MOST_LABELS)
        first, second = divmod(stop, width)
        stops[group], stops[size + group] = first, second + middle
    return labels[0, 0, 0, best, ROW], stops, num_steps


@compiled
def _step(
    of: _Tables,
    group: int,
    stop: int,
    stop2: int,
    middle: int,
    limit_s: float,
    reached: Floats,
    into: tuple[Floats, Ints, Ints],
) -> int:
    """Try every choice of layers for one device group whose stages stop at these; returns how many.

    `reached` are the labels there, shape (n, 4); `into` are those of the states in front, their numbers, and where each
    came from.
    """
    num_steps, width, label = 0, len(of.forward_s) - middle, np.empty(4)
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
            own = _own(of, group, 0, start, stop, start2, stop2)
            if own.row_s >= limit_s or not _any_below(own, reached, limit_s):
                continue
            mode = _first_fitting(of, group, start, stop, start2, stop2)
            if mode < 0:
                break  # More layers do not fit either.
            if mode > 0:
                own = _own(of, group, mode, start, stop, start2, stop2)
            at = start, start2 - middle
            for index in range(len(reached)):
                _add_group(own, reached[index], label)
                if label[ROW] < limit_s:
                    origin = (stop * width + stop2 - middle) * MOST_LABELS + index
                    into[1][at] = _keep(label, origin, into[0][at], into[2][at], into[1][at])
    return num_steps


class _Own(NamedTuple):
    """What a device group with its layers adds to a label, in seconds."""

    row_s: float
    """Its busy row by the way home of its second chunk."""
    end_s: float
    """The end of its last backward, whatever comes behind it."""
    gradient_s: float
    """From the last backward of the device group behind it; minus infinity for the last one."""
    leaves_link: bool
    """Whether that gradient leaves a link on which the device groups behind do their all-reduces."""
    home_s: float
    """What follows its last backward."""
    first_sync_s: float
    sync_s: float
    """Of its first all-reduce, and of all of them."""
    queue: int
    """See `_Tables.queues`."""


@compiled
def _own(of: _Tables, group: int, mode: int, start: int, stop: int, start2: int, stop2: int) -> _Own:
    size, second = of.num_groups, of.num_groups + group
    way_s, back_s = of.forward_s, of.backward_s
    before_s, behind_s = of.transfers_before_s, of.transfers_behind_s
    f1, f2 = way_s[stop] - way_s[start], way_s[stop2] - way_s[start2]
    b1 = of.backward_in_mode_s[mode, stop] - of.backward_in_mode_s[mode, start]
    b2 = of.backward_in_mode_s[mode, stop2] - of.backward_in_mode_s[mode, start2]
    more1, more2 = b1 - (back_s[stop] - back_s[start]), b2 - (back_s[stop2] - back_s[start2])
    work_s = of.num_microbatches * (f1 + f2 + b1 + b2)
    arrive_s = max(way_s[start] + before_s[group, start], way_s[start2] + before_s[second, start2] - size * f1)
    # Round trip to the first backward of either stage, less the work that precedes it.
    forth_s, counts = way_s[-1] + behind_s[0, 0], of.work_before[group]
    trip1 = forth_s + back_s[-1] - back_s[start] + behind_s[group, start] + more1 + more2 - b1
    trip2 = forth_s + back_s[-1] - back_s[start2] + behind_s[second, start2] + more2 - b2
    trip1 -= counts[0, 0] * f1 + counts[0, 1] * f2 + counts[0, 2] * b1 + counts[0, 3] * b2
    trip2 -= counts[1, 0] * f1 + counts[1, 1] * f2 + counts[1, 2] * b1 + counts[1, 3] * b2
    tail_s = of.tail_s[stop] - of.tail_s[start] + of.tail_s[stop2] - of.tail_s[start2] + 2 * of.tail_offset_s
    first_tail_s = of.tail_s[1] + 2 * of.tail_offset_s  # of device group 0, with its first layer
    home_s = back_s[start] + before_s[group, start]
    home2_s = back_s[start2] + more1 + before_s[second, start2] - size * b1
    first_sync_s = of.sync_s[stop] - of.sync_s[start] + of.sync_offset_s
    return _Own(
        row_s=arrive_s + work_s + home2_s + first_tail_s,
        end_s=max(arrive_s, trip1, trip2) + work_s,
        gradient_s=of.transfer_s[group, stop] + b1 if group < size - 1 else -np.inf,
        leaves_link=group < size - 1 and of.queues[group + 1] == 0,
        home_s=max(home_s + first_tail_s, tail_s),
        first_sync_s=first_sync_s,
        sync_s=first_sync_s + of.sync_s[stop2] - of.sync_s[start2] + of.sync_offset_s,
        queue=of.queues[group],
    )


@compiled
def _add_group(own: _Own, behind: Floats, label: Floats) -> None:
    """Write the label of the walks that go on from `behind` with one more device group."""
    sent_s, first_free_s, free_s = behind[END], behind[FIRST_FREE], behind[FREE]
    if own.leaves_link:  # The last gradient goes there after the first all-reduces.
        sent_s, first_free_s, free_s = max(sent_s, first_free_s), -np.inf, -np.inf
    end_s = max(own.end_s, sent_s + own.gradient_s)
    free_s = max(free_s, end_s) + own.sync_s
    if own.queue > 0:
        first_free_s = max(first_free_s, end_s) + own.first_sync_s if own.queue > 1 else -np.inf
    label[ROW] = max(behind[ROW], own.row_s, end_s + own.home_s, free_s)
    label[END], label[FIRST_FREE], label[FREE] = end_s, first_free_s, free_s


@compiled
def _any_below(own: _Own, reached: Floats, limit_s: float) -> bool:
    """Whether a label that goes on with the device group stays below the limit."""
    label = np.empty(4)
    for index in range(len(reached)):
        _add_group(own, reached[index], label)
        if label[ROW] < limit_s:
            return True
    return False


@compiled
def _keep(label: Floats, origin: int, labels: Floats, origins: Ints, count: int) -> int:
    """Add a label to those of its state unless one is as good in every way; returns how many there are then.

    Where there is no room left, the nearest one and the new one become one, with the lesser of all their times: it
    bounds the walks of both.
    """
    for other in range(count):
        if (labels[other] <= label).all():
            return count
    if count == len(labels):
        nearest, least_s = 0, np.inf
        for other in range(count):
            apart_s = 0.0
            for of in range(4):
                if labels[other, of] != label[of]:
                    apart_s += abs(labels[other, of] - label[of])
            if apart_s < least_s:
                nearest, least_s = other, apart_s
        label = np.minimum(label, labels[nearest])
    kept = 0
    for other in range(count):
        if not (label <= labels[other]).all():
            labels[kept], origins[kept] = labels[other], origins[other]
            kept += 1
    labels[kept], origins[kept] = label, origin
    return kept + 1


@compiled
def _first_fitting(of: _Tables, group: int, start: int, stop: int, start2: int, stop2: int) -> int:
    """The first mode in which a device group fits in memory, -1 if there is none."""
    for mode in range(len(of.static_bytes)):
        static, saved, working = of.static_bytes[mode], of.saved_bytes[mode], of.working_bytes[mode]
        most = 0.0
        for row in range(of.first_held[group], of.first_held[group + 1]):
            first, second, acting = of.held[row]
            held = first * (saved[stop] - saved[start]) + second * (saved[stop2] - saved[start2])
            most = max(most, held + (working[start2, stop2] if acting > 0 else working[start, stop]))
        if static[stop] - static[start] + static[stop2] - static[start2] + most <= of.limit_bytes:
            return mode
    return -1
