"""Several labels at a counted node, where one for all ways there is not enough to tell whether any path is in time.

Of two ways to a node the one that is no longer by any length says as much about every way on, so the other one needs no
label. If more than a *width* of labels are left at a node, the two that are most alike become one, with the least of
each length: a relaxed decision diagram of limited width (Bergman, Cire, van Hoeve and Hooker, Decision Diagrams for
Optimization, 2016). So a label of a single way is that of a path with its own lengths, and if there is none at the
sink, no plan has all its rows at or below T. On the first host a way is known by more than its lengths: when it leaves,
the forwards there are :mod:`played <stagecut.planner.network.labels.forwards_played>`. So there no way stands for
another.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled, inlined
from stagecut.planner.network.labels.counted_nodes import NONE, after_arc
from stagecut.planner.network.labels.forwards_played import Played, none_played, play_further
from stagecut.planner.network.labels.latest import in_time
from stagecut.planner.network.labels.lengths import GAIN, HOME, HOST, LEFT, SLOW_BACKWARD, SLOW_FORWARD, START, extend
from stagecut.planner.network.labels.sweep import Sweep, way_back


class LabelSets(NamedTuple):
    """Labels in the order in which they are made, and those at each of C counted nodes as a list through them."""

    first: Ints
    """The first label at each node, or `NONE`, shape (C,)."""
    size: Ints
    """How many there are, shape (C,)."""
    next: Ints
    """The next label at the same node, or `NONE`, shape (labels,)."""
    lengths: Floats
    """Shape (labels, lengths)."""
    arc: NDArray[np.int32]
    """The last arc of the way, shape (labels,)."""
    before: NDArray[np.int32]
    """The label that this arc leads on, shape (labels,)."""
    is_path: Bools
    """Whether all lengths are those of one way, shape (labels,)."""


class Reached(NamedTuple):
    """What labels reach the sink."""

    any: bool
    paths: list[Ints]
    """Arcs of the paths that have labels of their own there, that with the shortest way home first."""


def reached_by(
    sweep: Sweep, latest: Floats, *, width: int, most_labels: int, most_arcs: int, plays: bool
) -> Reached | None:
    """What reaches the sink in time with up to `width` labels a node; None if that takes more than `most_labels`.

    Paths have up to `most_arcs`. With `plays`, the first forwards of each path are played on its first host, which
    needs arcs whose seconds and depths are those of the plan.
    """
    if most_labels == 0:
        return None
    most_depth = sweep.criteria.turns.largest_depth.max(initial=0) if plays else NONE
    played = none_played(most_arcs, int(most_depth))
    num_nodes = len(sweep.nodes.state)
    first, size = np.full(num_nodes, NONE), np.zeros(num_nodes, np.int64)
    # What is not used is not touched, and takes no memory.
    arc, before = np.empty((2, most_labels), np.int32)
    lengths, is_path = np.empty((most_labels, len(START))), np.zeros(most_labels, bool)
    sets = LabelSets(first, size, np.empty(most_labels, np.int64), lengths, arc, before, is_path)
    if not _set_labels(sweep, latest, width, _weights(sweep), played, sets):
        return None
    ends = [label for node in sweep.nodes.at_sink() for label in _labels_at(sets, node)]
    whole = sorted((label for label in ends if sets.is_path[label]), key=lambda label: float(lengths[label, HOME]))
    return Reached(bool(ends), [way_back(sets.arc, sets.before, label) for label in whole])


def _weights(sweep: Sweep) -> Floats:
    """How much a second of each length counts when labels are compared: all micro-batches take what is of one."""
    weights = np.ones(len(START))
    weights[[SLOW_FORWARD, SLOW_BACKWARD, GAIN, LEFT]] = sweep.criteria.turns.num_microbatches
    return weights


@compiled
def _set_labels(sweep: Sweep, latest: Floats, width: int, weights: Floats, played: Played, sets: LabelSets) -> bool:
    """Set the labels of all ways in time; False if there is no room for more."""
    sweep, latest, sets, weights, played = borrowed((sweep, latest, sets, weights, played))
    plays, path = played.arrival.shape[1] > 0, np.empty(2 * len(played.first) + 1, np.int64)
    arcs, nodes, (after, _, ways), depths = sweep.arcs, sweep.nodes, sweep.room, sweep.criteria.turns.depths
    for length in range(len(START)):
        sets.lengths[0, length] = START[length]
    sets.first[0], sets.size[0], sets.next[0], sets.is_path[0] = 0, 1, NONE, True
    num_labels = 1
    for arc in arcs.order:
        terms, node = sweep.terms[arc], arcs.tail[arc]
        for here in range(nodes.first[node], nodes.first[node + 1]):
            head = NONE
            if sets.size[here] > 0:
                head = after_arc(arcs, sweep.openings, nodes.number, arc, nodes.state[here])
            if head == NONE:
                continue
            label = sets.first[here]
            while label != NONE:
                taken = extend(terms, sets.lengths[label], nodes.ways_on[head], depths, sweep.thetas, ways, after)
                if taken and plays and terms.crossing > -np.inf and _is_played(sets, label):
                    _play(sweep, sets, label, arc, nodes.ways_on[head, 0], after, path, played)
                if taken and in_time(after, latest[head]) and not _is_known(sets, head, after, plays):
                    if sets.size[head] == width:
                        _merge(sets, head, weights, after)
                    elif num_labels == len(sets.arc):
                        return False
                    else:
                        sets.arc[num_labels], sets.before[num_labels] = arc, label
                        sets.is_path[num_labels] = sets.is_path[label]
                        _add(sets, head, num_labels, after)
                        num_labels += 1
                label = sets.next[label]
    return True


@compiled
def _play(
    sweep: Sweep, sets: LabelSets, label: int, last: int, way_on: float, after: Floats, path: Ints, played: Played
) -> None:
    """Play the first host, which the way of a label leaves with its last arc; `path` has room for these arcs."""
    length, before = 1, label
    while before != 0:
        length, before = length + 1, sets.before[before]
    path[length - 1] = last
    for index in range(length - 2, -1, -1):
        path[index], label = sets.arc[label], sets.before[label]
        if sweep.terms[path[index]].after_home > -np.inf:
            return
    play_further(sweep, path[:length], 0, way_on, after, played)


@inlined
def _is_played(sets: LabelSets, label: int) -> bool:
    """Whether a label is that of a single way on the first host, which is played when it leaves."""
    return bool(sets.is_path[label] and sets.lengths[label, HOST] == -np.inf)


@compiled
def _is_known(sets: LabelSets, node: int, after: Floats, plays: bool) -> bool:
    """Whether a label at a node has no longer lengths; those that have no shorter ones are left out.

    With `plays`, no label on the first host stands for another.
    """
    previous, label = NONE, sets.first[node]
    while label != NONE:
        longer = shorter = False
        for length in range(len(after)):
            longer |= after[length] > sets.lengths[label, length]
            shorter |= after[length] < sets.lengths[label, length]
            if longer and shorter:
                break
        if not shorter and not (plays and sets.lengths[label, HOST] == -np.inf):
            return True
        following = sets.next[label]
        if longer or (plays and after[HOST] == -np.inf):
            previous = label
        else:
            sets.size[node] -= 1
            if previous == NONE:
                sets.first[node] = following
            else:
                sets.next[previous] = following
        label = following
    return False


@inlined
def _add(sets: LabelSets, node: int, label: int, after: Floats) -> None:
    for length in range(len(after)):
        sets.lengths[label, length] = after[length]
    sets.next[label] = sets.first[node]
    sets.first[node] = label
    sets.size[node] += 1


@compiled
def _merge(sets: LabelSets, node: int, weights: Floats, after: Floats) -> None:
    """Lower the lengths of the label at a node that is most like a new one to those of this one."""
    nearest, least, label = NONE, np.inf, sets.first[node]
    while label != NONE:
        apart = 0.0
        for length in range(len(after)):
            if after[length] != sets.lengths[label, length]:  # both may be minus infinity
                apart += weights[length] * abs(after[length] - sets.lengths[label, length])
        if nearest == NONE or apart < least:
            nearest, least = label, apart
        label = sets.next[label]
    for length in range(len(after)):
        sets.lengths[nearest, length] = min(after[length], sets.lengths[nearest, length])
    sets.is_path[nearest] = False


def _labels_at(sets: LabelSets, node: int) -> list[int]:
    found, label = [], int(sets.first[node])
    while label != NONE:
        found.append(label)
        label = int(sets.next[label])
    return found
