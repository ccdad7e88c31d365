"""Several labels at each counted node: a tighter relaxation than the least of each length.

A label stands for some of the paths to its node; each of its lengths is at most that of all of them. An arc takes every
label further. One that is nowhere shorter than another is left out, as whatever follows it is possible after the other
one. Where there is no room for one more, two labels become one, with the lesser of each length. So "no path" remains a
proof for any number of labels; with one label each, this is the relaxation of
:mod:`stagecut.planner.network.labels.counted_paths`, and with room for all undominated ones nothing is relaxed.
"""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.labels.counted_nodes import NONE, CountedNodes, Openings, after_arc
from stagecut.planner.network.labels.lengths import (
    ROUND_TRIP,
    START,
    Criteria,
    Step,
    chosen_by,
    extend,
    set_ways_to_turns,
    terms_of,
)


class LabelSets(NamedTuple):
    """Up to K labels of each of C counted nodes; number c K + j is label j of node c."""

    lengths: Floats
    """Shape (C K, lengths)."""
    filled: Ints
    """How many labels there are, shape (C,)."""
    arc: Ints
    """The last arc of the path chosen, shape (C K,)."""
    before: Ints
    """The number of the label that this arc leads on, shape (C K,)."""


def label_sets(num_nodes: int, width: int) -> LabelSets:
    """Room for labels, with the one at the source."""
    most = num_nodes * width
    sets = LabelSets(
        np.empty((most, len(START))),
        np.zeros(num_nodes, dtype=np.int64),
        np.empty(most, dtype=np.int64),
        np.empty(most, dtype=np.int64),
    )
    sets.lengths[0] = START
    sets.filled[0] = 1
    return sets


def labels_at(sets: LabelSets, nodes: Ints) -> Ints:
    """The numbers of the labels of some counted nodes."""
    width = len(sets.arc) // len(sets.filled)
    return np.concatenate([np.arange(sets.filled[node]) + node * width for node in nodes], dtype=np.int64)


def walk_back(sets: LabelSets, label: int) -> Ints:
    """Arcs of the path that a label stems from."""
    path = []
    while label != 0:
        path.append(sets.arc[label])
        label = int(sets.before[label])
    return np.array(path[::-1], dtype=np.int64)


@compiled
def set_label_sets(
    arcs: SortedArcs,
    openings: Openings,
    criteria: Criteria,
    nodes: CountedNodes,
    thetas: Floats,
    sets: LabelSets,
    possible: Bools,
) -> None:
    """Set the labels from the source on, and which arcs are taken in time on a way to the sink."""
    after, depths, ways = START.copy(), criteria.turns.depths, nodes.ways_on[0].copy()
    width = len(sets.arc) // len(sets.filled)
    for arc in arcs.order:
        terms, node = terms_of(criteria, arc), arcs.tail[arc]
        for here in range(nodes.first[node], nodes.first[node + 1]):
            head = NONE if sets.filled[here] == 0 else after_arc(arcs, openings, nodes.number, arc, nodes.state[here])
            if head == NONE:
                continue
            for label in range(here * width, here * width + sets.filled[here]):
                step = Step(label, head)
                set_ways_to_turns(terms, step, nodes.ways_on, depths, ways)
                if extend(terms, step, sets.lengths, nodes.ways_on[head, 0], ways, depths, thetas, after):
                    possible[arc] = True
                    _add(sets, step, arc, after)


@compiled
def _add(sets: LabelSets, step: Step, arc: int, after: Floats) -> None:
    """Add a label, or make room for it."""
    node, width = step.head, len(sets.arc) // len(sets.filled)
    first, count = node * width, sets.filled[node]
    place, least_loss, kept = first + count, np.inf, count < width
    for label in range(first, first + count):
        longer, shorter, loss = True, True, 0.0
        for length in range(len(after)):
            known, new = sets.lengths[label, length], after[length]
            if known != new:
                loss += min(abs(known - new), 1e3 * (1.0 + abs(after[ROUND_TRIP])))
                longer &= new > known
                shorter &= new < known
        if longer:
            return
        if shorter:
            place, kept = label, True
            for length in range(len(after)):
                sets.lengths[label, length] = np.inf
            count -= 1
            break
        if not kept and loss < least_loss:
            place, least_loss = label, loss
    if place == first + count:
        for length in range(len(after)):
            sets.lengths[place, length] = np.inf
    if kept:
        sets.filled[node] = count + 1
    by = chosen_by(len(after))
    if after[by] < sets.lengths[place, by]:
        sets.arc[place], sets.before[place] = arc, step.label
    for length in range(len(after)):
        sets.lengths[place, length] = min(sets.lengths[place, length], after[length])
