"""The least times of walks back over the device groups of a shape with two chunks; derivations: docs/bounds.md."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.solvers.interleaved.walk_tables import Tables

MOST_LABELS = 16
"""Labels of a state. On bert-large and commodity-32 the least bound of a shape is 0.830 of the best plan with one,
0.858 with 8 and no more with 32, whose other bounds are up to 0.5 % higher, in twice the time."""
ROW, END, FIRST_FREE, FREE, FIRST, FIRST2, LAST2 = range(NUM_TIMES := 7)
"""Of a label: the least times of walks to a state, in seconds from the start of the iteration.

ROW: the largest busy, sync, fill, drain or home row of the device groups so far; END: the end of the last backward of
the first of them; FIRST_FREE: when its link has served the first all-reduces, from the last device group on it down to
this one, minus infinity where the last gradient that leaves the link does not wait for them; FREE: when its link has
served all the all-reduces of these; FIRST, FIRST2: the ends of the first backwards of both its stages;
LAST2: that of the last backward of its second stage.
"""


class OwnTimes(NamedTuple):
    """What a device group with its layers adds to a label, in seconds."""

    row_s: float
    """Its busy row by the way home of its second chunk; that by the first one's needs what comes behind."""
    done_s: float
    """The end of its list, begun as soon as activations arrive."""
    first_s: float
    first2_s: float
    """The starts of the first backwards of both stages, whatever comes behind."""
    backward_s: float
    backward2_s: float
    between_s: float
    """From the end of a backward of its second stage to the start of that of the same micro-batch on its first one."""
    left_s: float
    left2_s: float
    """Its list from these starts on."""
    round_s: float
    """The backwards of its first stage after the last one of its second."""
    gradient_s: float
    gradient2_s: float
    """From the device group behind it to both stages; minus infinity for the last one."""
    leaves_link: bool
    """Whether the gradient to the first stage leaves a link on which the device groups behind do their all-reduces."""
    home_s: float
    """What follows its last backward."""
    first_sync_s: float
    sync_s: float
    """Of its first all-reduce, and of all of them."""
    queue: int
    """See `Tables.queues`."""


@compiled
def own_times(of: Tables, group: int, mode: int, start: int, stop: int, start2: int, stop2: int) -> OwnTimes:
    """Of the layers [start, stop) and [start2, stop2), by sums before each boundary and the least transfers."""
    size, second = of.num_groups, of.num_groups + group
    way_s, back_s = of.forward_s, of.backward_s
    before_s, behind_s = of.transfers_before_s, of.transfers_behind_s
    f1, f2 = way_s[stop] - way_s[start], way_s[stop2] - way_s[start2]
    b1 = of.backward_in_mode_s[mode, stop] - of.backward_in_mode_s[mode, start]
    b2 = of.backward_in_mode_s[mode, stop2] - of.backward_in_mode_s[mode, start2]
    more1, more2 = b1 - (back_s[stop] - back_s[start]), b2 - (back_s[stop2] - back_s[start2])
    work_s = of.num_microbatches * (f1 + f2 + b1 + b2)
    arrive_s = max(way_s[start] + before_s[group, start], way_s[start2] + before_s[second, start2] - size * f1)
    # Round trip to the first backward of either stage, and the work that precedes it.
    forth_s, counts = way_s[-1] + behind_s[0, 0], of.work_before[group]
    trip1 = forth_s + back_s[-1] - back_s[start] + behind_s[group, start] + more1 + more2 - b1
    trip2 = forth_s + back_s[-1] - back_s[start2] + behind_s[second, start2] + more2 - b2
    ahead1 = counts[0, 0] * f1 + counts[0, 1] * f2 + counts[0, 2] * b1 + counts[0, 3] * b2
    ahead2 = counts[1, 0] * f1 + counts[1, 1] * f2 + counts[1, 2] * b1 + counts[1, 3] * b2
    tail_s = of.tail_s[stop] - of.tail_s[start] + of.tail_s[stop2] - of.tail_s[start2] + 2 * of.tail_offset_s
    first_tail_s = of.tail_s[1] + 2 * of.tail_offset_s  # of device group 0, with its first layer
    home_s = back_s[start] + before_s[group, start]
    home2_s = back_s[start2] + more1 + before_s[second, start2] - size * b1
    first_sync_s = of.sync_s[stop] - of.sync_s[start] + of.sync_offset_s
    gradient_s, gradient2_s = of.transfer_s[group, stop], of.transfer_s[second, stop2]
    leaves_link = True
    if group == size - 1:
        gradient_s, gradient2_s = -np.inf, -np.inf
    else:
        leaves_link = of.queues[group + 1] == 0
    between_s = back_s[start2] - back_s[stop] + of.transfers_between_s[group]
    sync_s = first_sync_s + of.sync_s[stop2] - of.sync_s[start2] + of.sync_offset_s
    return OwnTimes(
        arrive_s + work_s + home2_s + first_tail_s,
        arrive_s + work_s,
        max(trip1, arrive_s + ahead1),
        max(trip2, arrive_s + ahead2),
        b1,
        b2,
        between_s,
        work_s - ahead1,
        work_s - ahead2,
        size * b1,
        gradient_s,
        gradient2_s,
        leaves_link,
        max(home_s + first_tail_s, tail_s),
        first_sync_s,
        sync_s,
        of.queues[group],
    )


@compiled
def add_group(own: OwnTimes, behind: Floats, label: Floats) -> None:
    """Write the label of the walks that go on from `behind` with one more device group."""
    sent_s, first_free_s, free_s = behind[END], behind[FIRST_FREE], behind[FREE]
    if own.leaves_link:  # The last gradient goes there after the first all-reduces.
        sent_s, first_free_s, free_s = max(sent_s, first_free_s), -np.inf, -np.inf
    first2_s = max(own.first2_s, behind[FIRST2] + own.gradient2_s)
    first_s = max(own.first_s, behind[FIRST] + own.gradient_s, first2_s + own.backward2_s + own.between_s)
    last2_s = max(own.done_s, first2_s + own.left2_s) - own.round_s
    last2_s = max(last2_s, behind[LAST2] + own.gradient2_s + own.backward2_s)
    end_s = max(first_s + own.left_s, last2_s + max(own.round_s, own.between_s + own.backward_s))
    end_s = max(end_s, sent_s + own.gradient_s + own.backward_s)
    free_s = max(free_s, end_s) + own.sync_s
    if own.queue > 0:
        first_free_s = max(first_free_s, end_s) + own.first_sync_s if own.queue > 1 else -np.inf
    label[ROW] = max(behind[ROW], own.row_s, end_s + own.home_s, free_s)
    label[END], label[FIRST_FREE], label[FREE] = end_s, first_free_s, free_s
    label[FIRST], label[FIRST2], label[LAST2] = first_s + own.backward_s, first2_s + own.backward2_s, last2_s


@compiled
def any_below(own: OwnTimes, reached: Floats, limit_s: float) -> bool:
    """Whether a label that goes on with the device group stays below the limit."""
    label = np.empty(NUM_TIMES)
    for index in range(len(reached)):
        add_group(own, reached[index], label)
        if label[ROW] < limit_s:
            return True
    return False


class States(NamedTuple):
    """The labels of all states in front of one device group: where its first stage starts, and its second one."""

    labels: Floats
    """Shape (starts, starts, labels, times)."""
    counts: Ints
    """How many there are of each state, shape (starts, starts)."""
    origins: Ints
    """What each comes from, shape (starts, starts, labels)."""


@compiled
def keep(states: States, start: int, start2: int, label: Floats, origin: int) -> None:
    """Add a label to those of its state unless one is as good in every way.

    Where there is no room left, the nearest one and the new one become one, with the lesser of all their times: it
    bounds the walks of both.
    """
    labels, origins, count = states.labels[start, start2], states.origins[start, start2], states.counts[start, start2]
    for other in range(count):
        if (labels[other] <= label).all():
            return
    if count == len(labels):
        label = np.minimum(label, labels[_nearest(label, labels)])
    kept = 0
    for other in range(count):
        if not (label <= labels[other]).all():
            labels[kept], origins[kept] = labels[other], origins[other]
            kept += 1
    labels[kept], origins[kept] = label, origin
    states.counts[start, start2] = kept + 1


@compiled
def _nearest(label: Floats, labels: Floats) -> int:
    """The label whose times differ least, in all."""
    nearest, least_s = 0, np.inf
    for other in range(len(labels)):
        apart_s = 0.0
        for time in range(len(label)):
            if labels[other, time] != label[time]:  # both may be minus infinity
                apart_s += abs(labels[other, time] - label[time])
        if apart_s < least_s:
            nearest, least_s = other, apart_s
    return nearest
