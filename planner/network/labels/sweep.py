"""What a sweep over the arcs takes, and the labels that it leaves at counted nodes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import inlined
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.labels.counted_nodes import NONE, CountedNodes, Openings
from stagecut.planner.network.labels.criteria import Criteria
from stagecut.planner.network.labels.lengths import NUM_SHARED, START

NUM_PARTS, PART_WIDTH = 8, 0.005
"""Into how many parts the ways to and from a counted node are divided, by how long the way home is, and how wide each
part is as a share of T; the last one has all that are longer. docs/decisions.md tells what others did."""


class Sweep(NamedTuple):
    """The arcs that count, where they lead and how long a path may be where it takes one."""

    arcs: SortedArcs
    openings: Openings
    criteria: Criteria
    nodes: CountedNodes
    thetas: Floats
    """See :func:`~stagecut.planner.network.labels.lengths.extend`."""
    terms: NDArray[np.void]
    """The :class:`~stagecut.planner.network.labels.arc_terms.ArcTerms` of the arcs, shape (A,)."""
    room: "Room"


class Room(NamedTuple):
    """Room for what one label becomes over one arc, so that loops need not make any."""

    after: Floats
    """The lengths after it, shape (lengths,)."""
    most: Floats
    """How long the limited ones may be before it, shape (limited lengths,)."""
    ways: Floats
    """The ways on from its tail, shape (turns,)."""


class Labels(NamedTuple):
    """What a sweep from the source finds at each of C counted nodes, of all ways there or in each of several parts."""

    lengths: Floats
    """The least of each length, shape (C, lengths) or (C, parts, lengths); not set where not reached."""
    arc: NDArray[np.int32]
    """The arc that the path chosen ends with, or `NONE`, shape (C,) or (C, parts); of no meaning at the source."""

    @property
    def as_parts(self) -> "Labels":
        """All ways to a node in a single part."""
        return Labels(self.lengths[:, None], self.arc[:, None])


def no_labels(sweep: Sweep, *parts: int) -> Labels:
    """Room for labels; with shared rows only they have the first few lengths."""
    num_nodes, num_lengths = len(sweep.nodes.state), len(START) if len(sweep.criteria.turns.is_stage) else NUM_SHARED
    return Labels(np.empty((num_nodes, *parts, num_lengths)), np.full((num_nodes, *parts), NONE, dtype=np.int32))


@inlined
def part_of(excess_s: float, num_parts: int, limit_s: float) -> int:
    """The part of ways that are longer than the least, or have less time left than the most, by so much."""
    if num_parts == 1 or limit_s == 0:
        return 0
    return int(min(num_parts - 1.0, max(0.0, excess_s / (PART_WIDTH * limit_s))))


def way_back(arc: NDArray[np.integer], before: NDArray[np.integer], entry: int) -> Ints:
    """The last arcs of entries from one back to the source, which is entry 0, in the order of the path."""
    path = []
    while entry != 0:
        path.append(arc[entry])
        entry = int(before[entry])
    return np.array(path[::-1], dtype=np.int64)
