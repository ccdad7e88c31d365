"""Labels over a sized network: partition, mapping and sublot sizes at once.

A label at a node is a way there, with sizes: its staircases, forwards and backwards. Labels are extended in the
order of the nodes; one is dropped if another one is nowhere later, or if what least remains behind it leads
past the limit. A stage has one size in both directions: see :mod:`stagecut.planner.network.sized.flush_problem`.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.network.sized.network import SizedNetwork
from stagecut.planner.network.sized.relaxation import (
    LINES,
    SizedRelaxation,
    cuts_of,
    release_of,
    seconds_of,
)
from stagecut.planner.sublots.labels import undominated
from stagecut.planner.sublots.staircases import staircases_behind


class SizedStep(NamedTuple):
    """An arc of a path and the indices of its sizes."""

    arc: int
    forward: int
    backward: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedPath:
    """A path from source to sink with sizes."""

    value_s: float
    """Forwards and backwards under a flush, without contention."""
    steps: tuple[SizedStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLabels:
    """What the labels have found."""

    paths: tuple[SizedPath, ...]
    """Of those below the limit, the fastest ones, best first."""
    bound_s: float
    """No path with sizes is faster; infinite if there is none at all below the limit."""
    complete: bool
    """Whether no label was dropped for want of room or time."""
    num_labels: int


class _Batch(NamedTuple):
    """Labels at a node: staircases of both lines, bounds, and how each was reached."""

    staircases: Floats
    """Shape (labels, 2 N)."""
    bounds_s: Floats
    origins: Ints
    """Number of the label before, arc, indices of both sizes; shape (labels, 4)."""


def label_paths(
    network: SizedNetwork,
    relaxations: tuple[SizedRelaxation, SizedRelaxation],
    limit_s: float,
    *,
    max_labels: int,
    most_paths: int,
    stop: Callable[[], bool],
) -> PathLabels:
    """Fastest paths with sizes below the limit.

    Parameters
    ----------
    relaxations
        Of forwards and backwards.
    max_labels
        Most labels kept at a node; if there are more, those with the least bounds.
    stop
        Asked at every node; once true, the bound is that of the labels not yet extended.
    """
    waiting: dict[int, list[_Batch]] = defaultdict(list)
    waiting[0].append(_source(network))
    outgoing = _outgoing(network)
    origins: list[Ints] = []
    first, dropped_s = 0, np.inf
    sink = network.graph.num_nodes - 1
    for node in sorted({0, *network.arcs.head.tolist()}):
        if not waiting[node]:
            continue
        batch = _Batch(*(np.concatenate(column) for column in zip(*waiting.pop(node), strict=True)))
        if stop():
            unfinished_s = [float(each.bounds_s.min()) for batches in waiting.values() for each in batches]
            bound_s = min(dropped_s, float(batch.bounds_s.min()), *unfinished_s)
            return PathLabels(paths=(), bound_s=bound_s, complete=False, num_labels=first)
        kept = undominated(batch.staircases, batch.bounds_s, max_labels + 1)
        if len(kept) > max_labels:
            dropped_s, kept = min(dropped_s, float(batch.bounds_s[kept[-1]])), kept[:-1]
        origins.append(batch.origins[kept])
        if node == sink:
            paths = _paths(batch, kept[:most_paths], np.concatenate(origins), first)
            best_s = min((path.value_s for path in paths), default=np.inf)
            bound_s, complete = min(dropped_s, best_s), dropped_s == np.inf
            return PathLabels(paths=paths, bound_s=bound_s, complete=complete, num_labels=first + len(kept))
        for arc in outgoing[node]:
            extended = _extended(network, relaxations, arc, batch.staircases[kept], first, limit_s)
            if len(extended.bounds_s):
                waiting[int(network.arcs.head[arc])].append(extended)
        first += len(kept)
    return PathLabels(paths=(), bound_s=dropped_s, complete=dropped_s == np.inf, num_labels=first)


def _source(network: SizedNetwork) -> _Batch:
    width = len(LINES) * network.sizing.num_samples
    return _Batch(np.zeros((1, width)), np.zeros(1), np.full((1, 4), -1))


def _outgoing(network: SizedNetwork) -> dict[int, list[int]]:
    outgoing: dict[int, list[int]] = defaultdict(list)
    for arc, tail in enumerate(network.arcs.tail.tolist()):
        outgoing[tail].append(arc)
    return outgoing


def _extended(
    network: SizedNetwork,
    relaxations: tuple[SizedRelaxation, SizedRelaxation],
    arc: int,
    staircases: Floats,
    first: int,
    limit_s: float,
) -> _Batch:
    """Labels behind an arc, from those in front of it, which are numbered from `first`."""
    allowed = np.flatnonzero(network.arcs.allowed[arc]).tolist()
    head = int(network.arcs.head[arc])
    behind: list[dict[int, tuple[Floats, Floats]]] = []
    for line, relaxation, before in zip(LINES, relaxations, np.split(staircases, len(LINES), axis=1), strict=True):
        after = {size: _behind(network, line, size, arc, before) for size in allowed}
        behind.append({size: (each, (each + relaxation.left_s[head]).max(axis=1)) for size, each in after.items()})
    is_stage, batches = network.arcs.option[arc] >= 0, []
    for there, (forward, forward_s) in behind[0].items():
        for back, (backward, backward_s) in behind[1].items():
            if is_stage and there != back:
                continue
            bounds_s = forward_s + backward_s
            rows = np.flatnonzero(bounds_s < limit_s)
            if len(rows):
                reached = np.column_stack((first + rows, *np.broadcast_arrays(arc, there, back, rows)[:3]))
                batches.append(_Batch(np.hstack((forward[rows], backward[rows])), bounds_s[rows], reached))
    if not batches:
        return _Batch(staircases[:0], np.zeros(0), np.zeros((0, 4), dtype=np.int64))
    return _Batch(*(np.concatenate(column) for column in zip(*batches, strict=True)))


def _behind(network: SizedNetwork, line: str, size: int, arc: int, before: Floats) -> Floats:
    alone = np.array([arc])
    seconds, release_s = seconds_of(network, line, size, alone)[0], release_of(network, line, alone)
    return staircases_behind(seconds, cuts_of(network, line, size), before, release_s)


def _paths(batch: _Batch, kept: Ints, origins: Ints, first: int) -> tuple[SizedPath, ...]:
    """The paths of labels at the sink, whose origins are the last ones and numbered from `first`."""
    paths = []
    for place, row in enumerate(kept.tolist()):
        steps, label = list[SizedStep](), first + place
        while label > 0:
            before, *step = origins[label].tolist()
            steps.append(SizedStep(*step))
            label = before
        paths.append(SizedPath(value_s=float(batch.bounds_s[row]), steps=tuple(reversed(steps))))
    return tuple(paths)
