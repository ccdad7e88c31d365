"""Several labels at each node and count state: a tighter relaxation than the least of each length.

A label stands for some of the paths to its node; each of its lengths is at most that of all of them. An arc takes every
label further. One that is nowhere shorter than another is left out, as whatever follows it is possible after the other
one. Where there is no room for one more, two labels become one, with the lesser of each length. So "no path" remains a
proof for any number of labels; with one label each, this is the relaxation of
:mod:`stagecut.planner.network.labels.counted_paths`, and with room for all undominated ones nothing is relaxed.
"""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.compiled import compiled
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.labels.lengths import (
    ROUND_TRIP,
    START,
    Criteria,
    Step,
    extend,
    set_ways_to_turns,
    terms_of,
)


class Openings(NamedTuple):
    """How arcs open hosts. Count states number the vectors of hosts opened per class in mixed radix."""

    server_class: Ints
    hosts: Ints
    """Hosts that the arc opens, shape (A,)."""
    steps: Ints
    """By how much the arc moves the number of the count state, shape (A,)."""
    left: Ints
    """Hosts of each class not yet opened in each count state, shape (classes, H)."""


class LabelSets(NamedTuple):
    """Up to K labels of each node and count state; label j of state h is number h K + j of its node."""

    lengths: Floats
    """Shape (nodes, H K, lengths)."""
    filled: Ints
    """How many labels there are, shape (nodes, H)."""
    arc: Ints
    """The last arc of the path of least round trip, shape (nodes, H K)."""
    before: Ints
    """The number of the label that this arc leads on, at the arc's tail, shape (nodes, H K)."""


def label_sets(num_nodes: int, num_states: int, width: int) -> LabelSets:
    """Room for labels, with the one at the source."""
    sets = LabelSets(
        np.empty((num_nodes, num_states * width, len(START))),
        np.zeros((num_nodes, num_states), dtype=np.int64),
        np.full((num_nodes, num_states * width), -1),
        np.full((num_nodes, num_states * width), -1),
    )
    sets.lengths[0, 0] = START
    sets.filled[0, 0] = 1
    return sets


def least_path(sets: LabelSets, tail: Ints) -> Ints | None:
    """Arcs of the path of least round trip; None if the sink is not reached."""
    width = sets.arc.shape[1] // sets.filled.shape[1]
    reached = np.repeat(sets.filled[-1], width) > np.tile(np.arange(width), sets.filled.shape[1])
    if not reached.any():
        return None
    label = int(np.argmin(np.where(reached, sets.lengths[-1, :, ROUND_TRIP], np.inf)))
    node, path = len(sets.filled) - 1, []
    while node != 0:
        arc, label = sets.arc[node, label], sets.before[node, label]
        path.append(arc)
        node = tail[arc]
    return np.array(path[::-1], dtype=np.int64)


@compiled
def set_label_sets(
    arcs: SortedArcs,
    openings: Openings,
    criteria: Criteria,
    ways_on: Floats,
    thetas: Floats,
    sets: LabelSets,
    possible: Bools,
) -> None:
    """Set the labels from the source on, and which arcs are taken in time on a way to the sink."""
    after, num_states, depths, ways = START.copy(), ways_on.shape[2], criteria.turns.depths, np.zeros(len(ways_on))
    width = sets.arc.shape[1] // num_states
    for arc in arcs.order:
        node, head, step = arcs.tail[arc], arcs.head[arc], openings.steps[arc]
        left, terms = openings.left[openings.server_class[arc]], terms_of(criteria, arc)
        for state in range(num_states - step):
            rest = ways_on[0, head, state + step]
            if left[state] < openings.hosts[arc] or rest == np.inf:
                continue
            for number in range(sets.filled[node, state]):
                label = Step(node, state * width + number, head, state + step)
                set_ways_to_turns(terms, label, ways_on, depths, ways)
                if extend(terms, label, sets.lengths, rest, ways, depths, thetas, after):
                    possible[arc] = True
                    _add(sets, label, arc, after)


@compiled
def _add(sets: LabelSets, step: Step, arc: int, after: Floats) -> None:
    """Add a label, or make room for it."""
    node, state, width = step.head, step.state_after, sets.arc.shape[1] // sets.filled.shape[1]
    first, count = state * width, sets.filled[node, state]
    place, least_loss, kept = first + count, np.inf, count < width
    for label in range(first, first + count):
        longer, shorter, loss = True, True, 0.0
        for length in range(len(after)):
            known, new = sets.lengths[node, label, length], after[length]
            if known != new:
                loss += min(abs(known - new), 1e3 * (1.0 + abs(after[ROUND_TRIP])))
                longer &= new > known
                shorter &= new < known
        if longer:
            return
        if shorter:
            place, kept = label, True
            for length in range(len(after)):
                sets.lengths[node, label, length] = np.inf
            count -= 1
            break
        if not kept and loss < least_loss:
            place, least_loss = label, loss
    if place == first + count:
        for length in range(len(after)):
            sets.lengths[node, place, length] = np.inf
    if kept:
        sets.filled[node, state] = count + 1
    if after[ROUND_TRIP] < sets.lengths[node, place, ROUND_TRIP]:
        sets.arc[node, place], sets.before[node, place] = arc, step.state
    for length in range(len(after)):
        sets.lengths[node, place, length] = min(sets.lengths[node, place, length], after[length])
