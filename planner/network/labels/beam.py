"""Some paths in time, where labels leave too many: a beam search.

The path that labels find mixes the lengths of several, and is mostly late by its own. In a beam each entry at a counted
node is one path with its own lengths. Of those in time the few with most *slack* are kept: the least that any length
has left to the :mod:`latest <stagecut.planner.network.labels.latest>` there. A beam finds plans and proves nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.network.labels.counted_nodes import NONE, after_arc
from stagecut.planner.network.labels.lengths import HOME, NUM_LIMITED, START, extend
from stagecut.planner.network.labels.sweep import Sweep, way_back


class Beam(NamedTuple):
    """Up to W paths to each of C counted nodes; entry c W + j is path j to node c."""

    filled: NDArray[np.int32]
    """How many paths there are, shape (C,)."""
    lengths: Floats
    """Shape (C W, lengths)."""
    slack: Floats
    """Shape (C W,)."""
    arc: Ints
    """The last arc of each path, shape (C W,)."""
    before: Ints
    """The entry that this arc leads on, shape (C W,)."""


def beam_paths(sweep: Sweep, latest: Floats, width: int) -> list[Ints]:
    """Arcs of up to `width` paths in time for each count state at the sink, those with the shortest way home first."""
    num_nodes = len(sweep.nodes.state)
    room = num_nodes * width
    # What is not filled is not touched, and takes no memory.
    filled, (arc, before) = np.zeros(num_nodes, np.int32), np.empty((2, room), np.int64)
    beam = Beam(filled, np.empty((room, len(START))), np.empty(room), arc, before)
    _set_beam(sweep, latest, beam)
    ends = [end * width + which for end in sweep.nodes.at_sink() for which in range(filled[end])]
    return [way_back(arc, before, entry) for entry in sorted(ends, key=lambda entry: float(beam.lengths[entry, HOME]))]


@compiled
def _set_beam(sweep: Sweep, latest: Floats, beam: Beam) -> None:
    sweep, latest, beam = borrowed((sweep, latest, beam))
    arcs, nodes, (after, _, ways), depths = sweep.arcs, sweep.nodes, sweep.room, sweep.criteria.turns.depths
    width = len(beam.arc) // len(beam.filled)
    for length in range(len(START)):
        beam.lengths[0, length] = START[length]
    beam.filled[0] = 1
    for arc in arcs.order:
        terms, node = sweep.terms[arc], arcs.tail[arc]
        for here in range(nodes.first[node], nodes.first[node + 1]):
            if beam.filled[here] == 0:
                continue
            head = after_arc(arcs, sweep.openings, nodes.number, arc, nodes.state[here])
            if head == NONE:
                continue
            for before in range(here * width, here * width + beam.filled[here]):
                if extend(terms, beam.lengths[before], nodes.ways_on[head], depths, sweep.thetas, ways, after):
                    slack = min(sweep.criteria.limit - after[HOME], _slack(after, latest[head]))
                    entry = NONE if slack < 0 else _entry(beam, head, slack, after)
                    if entry != NONE:
                        beam.slack[entry], beam.arc[entry], beam.before[entry] = slack, arc, before
                        for length in range(len(after)):
                            beam.lengths[entry, length] = after[length]


@compiled
def _slack(after: Floats, latest: Floats) -> float:
    """The least that a length has left, in the part of the ways on that leaves most; see :func:`in_time`."""
    most = -np.inf
    for part in range(len(latest)):
        slack = np.inf
        for length in range(NUM_LIMITED):
            slack = min(slack, latest[part, length] - after[length])
        most = max(most, slack)
    return most


@compiled
def _entry(beam: Beam, node: int, slack: float, after: Floats) -> int:
    """Where a path is kept: in an empty place, or that of the one with least slack; `NONE` if there is no less.

    Paths that differ by the names of hosts only have the same lengths, and one of them is enough.
    """
    width, filled = len(beam.arc) // len(beam.filled), beam.filled[node]
    first = node * width
    least = first
    for entry in range(first, first + filled):
        if beam.slack[entry] == slack and (beam.lengths[entry] == after).all():
            return NONE
        if beam.slack[entry] < beam.slack[least]:
            least = entry
    if filled < width:
        beam.filled[node] += 1
        return int(first + filled)
    return int(least) if beam.slack[least] < slack else NONE
