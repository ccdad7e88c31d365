"""Lower bounds on what leads to the nodes of a sized network and on what follows, sample by sample.

The staircases of :mod:`stagecut.planner.sublots.staircases`, least over all paths and sizes for each sample by
itself: another sample may have its least on another path. An arc is then on no plan faster than the sum, over
forwards and backwards, of its least makespan: the least, over its sizes, of the longest way through.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.sublot_sizes import sublot_cuts
from stagecut.planner.network.sized.network import SizedNetwork
from stagecut.planner.sublots.staircases import staircases_behind, ways_before

LINES = ("forward", "backward")
"""Forwards, and backwards seen backwards in time: both pass the stages in the same order."""
CHUNK_NUMBERS = 1 << 22
"""Numbers of an array worked on at once, 32 MB: a level of a large network is cut into parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArcLevel:
    """Arcs at the nodes of one level, grouped by node."""

    arcs: Ints
    others: Ints
    """The other end of each arc."""
    begins: Ints
    """Where the arcs of each node begin."""
    nodes: Ints
    """The nodes by which the arcs are grouped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedRelaxation:
    """Least staircases and ways of one line."""

    arrived_s: Floats
    """Completion times in front of each node, shape (nodes, N)."""
    left_s: Floats
    """Longest ways from the arrival at each node to the end, shape (nodes, N)."""


def relax_line(network: SizedNetwork, line: str) -> SizedRelaxation:
    """Bounds of one line at every node; infinite where no path leads."""
    graph, shape = network.graph, (network.graph.num_nodes, network.sizing.num_samples)
    arrived_s, left_s = np.full(shape, np.inf), np.full(shape, np.inf)
    arrived_s[0] = left_s[-1] = 0.0
    for level in _levels(graph.head, graph.tail, graph.level):
        arrived_s[level.nodes] = _least(network, line, level, arrived_s, forwards=True)
    for level in _levels(graph.tail, graph.head, graph.level)[::-1]:
        left_s[level.nodes] = _least(network, line, level, left_s, forwards=False)
    return SizedRelaxation(arrived_s=arrived_s, left_s=left_s)


def _levels(near: Ints, far: Ints, level: Ints) -> list[ArcLevel]:
    """The arcs by the level of their near ends, in ascending order."""
    order = np.argsort(near, kind="stable")
    nodes, firsts = np.unique(near[order], return_index=True)
    # Each level is a range of the distinct nodes, and of the arcs in order.
    cuts = [0, *(np.flatnonzero(np.diff(level[nodes])) + 1).tolist(), len(nodes)]
    bounds, others = np.append(firsts, len(near)), far[order]
    return [
        ArcLevel(
            arcs=order[bounds[low] : bounds[high]],
            others=others[bounds[low] : bounds[high]],
            begins=firsts[low:high] - bounds[low],
            nodes=nodes[low:high],
        )
        for low, high in itertools.pairwise(cuts)
        if low < high
    ]


def _least(network: SizedNetwork, line: str, level: ArcLevel, known_s: Floats, *, forwards: bool) -> Floats:
    """Least staircases behind, or ways before, the arcs of a level, by node."""
    width, parts = network.sizing.num_samples, []
    step = max(1, CHUNK_NUMBERS // width)
    for first in range(0, len(level.arcs), step):
        arcs, others = level.arcs[first : first + step], level.others[first : first + step]
        least = np.full((len(arcs), width), np.inf)
        for index in range(len(network.sizing.sizes)):
            usable = np.flatnonzero(network.arcs.allowed[arcs, index])
            if len(usable):
                pass_s = _passed(network, line, index, arcs[usable], known_s[others[usable]], forwards=forwards)
                least[usable] = np.minimum(least[usable], pass_s)
        parts.append(least)
    merged: Floats = np.minimum.reduceat(np.concatenate(parts), level.begins, axis=0)
    return merged


def _passed(network: SizedNetwork, line: str, index: int, arcs: Ints, known_s: Floats, *, forwards: bool) -> Floats:
    """Staircases behind arcs with one size, or ways before them, shape (arcs, N)."""
    cuts = cuts_of(network, line, index)
    seconds = seconds_of(network, line, index, arcs)
    if forwards:
        return staircases_behind(seconds, cuts, known_s, release_of(network, line, arcs))
    return ways_before(seconds, cuts, known_s)


def cuts_of(network: SizedNetwork, line: str, index: int) -> Ints:
    """Boundaries of the sublots of one of the sizes, shape (J + 1,)."""
    return sublot_cuts(network.sizing.num_samples, network.sizing.sizes[index], partial_first=line == "backward")


def seconds_of(network: SizedNetwork, line: str, index: int, arcs: Ints) -> Floats:
    """Seconds of each sublot of one of the sizes, shape (arcs, J)."""
    table: Floats = getattr(network.arcs, f"{line}_s")
    columns = np.searchsorted(network.sizing.lengths, np.diff(cuts_of(network, line, index)))
    return table[arcs[:, None], columns]


def release_of(network: SizedNetwork, line: str, arcs: Ints) -> Floats:
    """Earliest start: backwards in time, a stage first does its optimizer step and all-reduce; shape (arcs, 1)."""
    return network.arcs.tail_s[arcs, None] if line == "backward" else np.zeros((len(arcs), 1))


def through_s(network: SizedNetwork, line: str, relaxation: SizedRelaxation) -> Floats:
    """Least makespan of the line with each arc, shape (A,)."""
    width = network.sizing.num_samples
    least = np.full(len(network.arcs), np.inf)
    step = max(1, CHUNK_NUMBERS // width)
    for first in range(0, len(least), step):
        arcs = np.arange(first, min(first + step, len(least)))
        for index in range(len(network.sizing.sizes)):
            usable = arcs[network.arcs.allowed[arcs, index]]
            behind_s = _passed(
                network, line, index, usable, relaxation.arrived_s[network.arcs.tail[usable]], forwards=True
            )
            ends_s = (behind_s + relaxation.left_s[network.arcs.head[usable]]).max(axis=1, initial=0.0)
            least[usable] = np.minimum(least[usable], ends_s)
    return least
