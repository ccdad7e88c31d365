"""Sweeps from the source and back from the sink, in turn, each leaving out what the other one rules out."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled, inlined
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.labels.arc_terms import terms_of
from stagecut.planner.network.labels.beam import beam_paths
from stagecut.planner.network.labels.counted_nodes import NONE, CountedNodes, Openings, after_arc
from stagecut.planner.network.labels.criteria import Criteria
from stagecut.planner.network.labels.enumeration import all_paths
from stagecut.planner.network.labels.label_sets import Reached, reached_by
from stagecut.planner.network.labels.latest import in_time, set_latest
from stagecut.planner.network.labels.lengths import (
    HOME,
    NUM_LIMITED,
    NUM_SHARED,
    ROUND_TRIP,
    START,
    chosen_by,
    extend,
    extend_shared,
)
from stagecut.planner.network.labels.sweep import NUM_PARTS, Labels, Room, Sweep, no_labels, part_of


class Cheapest(NamedTuple):
    """What a sweep over the network found."""

    path: Ints
    """Arcs of the path, in order."""
    possible: Bools
    """Which arcs some way from source to sink takes in time, shape (A,)."""
    round_trip_s: float
    """The least round trip of any path in time; that of the path found may be longer."""
    home_s: float
    """The least way home with its queues; with shared rows only, the round trip."""


class Rival(NamedTuple):
    """A path whose way on to the sink sets the windows: how late paths like it are shows best."""

    depths: Ints
    """Warm-up depths of its stages, the last stage first."""
    ways_s: Floats
    """The round trip from each stage to the sink, in that order."""

    @classmethod
    def of(cls, path: Ints, criteria: Criteria) -> "Rival":
        """Arcs of a path, in order."""
        stages, round_trip = criteria.turns.is_stage[path], criteria.round_trip[path]
        ways_s = np.cumsum(round_trip[::-1])[::-1]
        # Without positions, largest depths may fall towards the first stage.
        depths = np.maximum.accumulate(criteria.turns.largest_depth[path][stages][::-1])
        return cls(depths, ways_s[stages][::-1])


class BackAndForth:
    """The ways through a network that are left, after any number of sweeps either way.

    Parameters
    ----------
    arcs, openings
        The arcs that may be used at first, and the hosts that they open.
    nodes
        Their ways on are lengthened in place.
    """

    def __init__(self, arcs: SortedArcs, openings: Openings, criteria: Criteria, nodes: CountedNodes) -> None:
        room = Room(START.copy(), START[:NUM_LIMITED].copy(), np.empty(len(criteria.turns.depths)))
        terms = terms_of(criteria, arcs.order)
        self._sweep = sweep = Sweep(arcs, openings, criteria, nodes, np.empty(0), terms, room)
        self._labels = no_labels(sweep)
        # Of the ways to and from each counted node, in one part or several.
        self._label_parts = self._labels.as_parts
        self._latest = np.full((len(nodes.state), 1, NUM_LIMITED), np.inf)
        self.num_extensions = 0
        """How many labels arcs took further in the last sweep from the source."""

    @property
    def num_nodes(self) -> int:
        """How many counted nodes there are."""
        return len(self._latest)

    @property
    def is_divided(self) -> bool:
        """Whether the ways to and from a counted node are in several parts."""
        return bool(self._latest.shape[1] > 1)

    def divide(self) -> None:
        """From now on keep lengths of several parts of the ways to and from a counted node; needs a sweep either way.

        The least of each length is then less often that of another path.
        """
        self._label_parts = no_labels(self._sweep, NUM_PARTS)
        self._latest = np.repeat(self._latest, NUM_PARTS, axis=1)

    @property
    def _no_arcs(self) -> Bools:
        return np.zeros(len(self._sweep.arcs.tail), dtype=bool)

    def leave_out(self, usable: Bools) -> None:
        """Leave out all arcs but these, shape (A,)."""
        arcs = self._sweep.arcs
        self._sweep = self._sweep._replace(arcs=arcs._replace(order=arcs.order[usable[arcs.order]]))

    def from_source(self, rival: Rival | None = None) -> Cheapest | None:
        """The path that is short by :func:`chosen_by`, from new labels; None if no path is left.

        Labels follow windows that show best how late paths like the rival are; any will do. Where the lengths of a
        label stem from different paths, the path found may be late for some arc; the least lengths are still lower
        bounds.
        """
        self._sweep = self._sweep._replace(thetas=thetas_of(self._sweep.criteria, self._sweep.nodes, rival))
        labels, possible = self._labels, self._no_arcs
        self._label_parts.arc[:] = NONE
        self.num_extensions = _set_labels(self._sweep, labels, self._label_parts, self._latest, possible)
        ends = self._sweep.nodes.at_sink()
        ends = ends[labels.arc[ends] != NONE]
        if len(ends) == 0:
            return None
        self.leave_out(possible)
        homes_s = labels.lengths[ends, chosen_by(labels.lengths.shape[1])]
        best = int(np.argmin(homes_s))
        round_trip_s = float(labels.lengths[ends, ROUND_TRIP].min())
        return Cheapest(self._walk_back(int(ends[best])), possible, round_trip_s, float(homes_s[best]))

    def from_sink(self) -> None:
        """Leave out what is too long for every way on from there; needs all rows, and labels."""
        possible = self._no_arcs
        set_latest(self._sweep, self._labels, self._latest[:, :, HOME].max(axis=1), self._latest, possible)
        self.leave_out(possible)

    def paths(self, *, most_steps: int, most_paths: int, most_arcs: int, plays: bool) -> Ints | None:
        """Arcs of all paths in time, see :func:`all_paths`."""
        limits = {"most_steps": most_steps, "most_paths": most_paths, "most_arcs": most_arcs}
        return all_paths(self._sweep, self._latest, **limits, plays=plays)

    def reached(self, *, width: int, most_labels: int, most_arcs: int, plays: bool) -> Reached | None:
        """What reaches the sink with several labels a node, see :func:`reached_by`."""
        limits = {"width": width, "most_labels": most_labels, "most_arcs": most_arcs}
        return reached_by(self._sweep, self._latest, **limits, plays=plays)

    def beam(self, width: int) -> list[Ints]:
        """Arcs of some paths in time, see :func:`beam_paths`."""
        return beam_paths(self._sweep, self._latest, width)

    def _walk_back(self, label: int) -> Ints:
        """Arcs of the path that a label stems from, least before and across them."""
        arcs, openings, nodes = self._sweep.arcs, self._sweep.openings, self._sweep.nodes
        path, state = [], nodes.state[label]
        while label != 0:
            arc = self._labels.arc[label]
            path.append(arc)
            state -= openings.steps[arc]
            label = nodes.number[arcs.tail[arc], state] - 1
        return np.array(path[::-1], dtype=np.int64)


def thetas_of(criteria: Criteria, nodes: CountedNodes, rival: Rival | None) -> Floats:
    """Times per micro-batch that loops take in plans at the limit, by warm-up depth of the first stage of a window.

    The loops that begin at a stage have T - total - way on for their M - k - 1 micro-batches, with total and way on of
    the rival; without one, with the least round trip and its share of it.
    """
    turns, total_s = criteria.turns, nodes.ways_on[0, 0] if rival is None else rival.ways_s[-1]
    depth = np.arange(turns.largest_depth.max(initial=0) + 1)
    way_on_s = total_s * depth / max(1, depth[-1])
    if rival is not None:
        way_on_s = np.interp(depth, rival.depths, rival.ways_s)
    left_s = criteria.limit - total_s - way_on_s
    thetas: Floats = np.maximum.accumulate(left_s / np.maximum(1, turns.num_microbatches - depth - 1))
    return thetas


@compiled
def _set_labels(sweep: Sweep, labels: Labels, parts: Labels, latest: Floats, possible: Bools) -> int:
    """Labels of all paths in time, and the arcs that are taken in time on a way to the sink; how many were tried.

    With a single part, `parts` has the arrays of `labels`. With several, `labels` has what the last sweep left.
    """
    sweep, labels, parts, latest = borrowed((sweep, labels, parts, latest))
    arcs, nodes, (after, _, ways), depths = sweep.arcs, sweep.nodes, sweep.room, sweep.criteria.turns.depths
    num_parts, num_lengths, num_extensions = parts.lengths.shape[1], parts.lengths.shape[2], 0
    full = num_lengths > NUM_SHARED
    for length in range(num_lengths):
        parts.lengths[0, 0, length] = START[length]
    parts.arc[0, 0] = 0
    for arc in arcs.order:
        terms, node = sweep.terms[arc], arcs.tail[arc]
        for here in range(nodes.first[node], nodes.first[node + 1]):
            if labels.arc[here] == NONE:
                continue
            head = after_arc(arcs, sweep.openings, nodes.number, arc, nodes.state[here])
            if head == NONE or (num_parts > 1 and labels.arc[head] == NONE):
                continue
            for part in range(num_parts):
                if parts.arc[here, part] == NONE:
                    continue
                num_extensions += 1
                before = parts.lengths[here, part]
                if full:
                    taken = extend(terms, before, nodes.ways_on[head], depths, sweep.thetas, ways, after)
                    taken = taken and in_time(after, latest[head])
                else:
                    taken = extend_shared(terms, before, nodes.ways_on[head, 0], after)
                if taken:
                    possible[arc] = True
                    by = chosen_by(num_lengths)
                    to = part_of(after[by] - labels.lengths[head, by], num_parts, sweep.criteria.limit)
                    _lower(parts.arc[head], parts.lengths[head], to, arc, after)
    if num_parts > 1:
        _merge(parts, labels)
    return num_extensions


@inlined
def _merge(parts: Labels, labels: Labels) -> None:
    """Set labels to the least of their parts."""
    labels.arc[:] = NONE
    for node in range(len(labels.arc)):
        for part in range(parts.arc.shape[1]):
            if parts.arc[node, part] != NONE:
                _lower(labels.arc, labels.lengths, node, parts.arc[node, part], parts.lengths[node, part])


@inlined
def _lower(last_arc: NDArray[np.int32], lengths: Floats, label: int, arc: int, after: Floats) -> None:
    """Lower the lengths of a label. Of several arcs with the least length to choose by it keeps the first number."""
    by = chosen_by(lengths.shape[1])
    if last_arc[label] == NONE:
        for which in range(lengths.shape[1]):
            lengths[label, which] = np.inf
    if (after[by], arc) < (lengths[label, by], last_arc[label]):
        last_arc[label] = arc
    for which in range(lengths.shape[1]):
        lengths[label, which] = np.minimum(after[which], lengths[label, which])
