"""Good interleaved plans in seconds.

1. The shapes of all interleaved variants, the one that could be fastest first, get chunks of equal
   work, or of equal weights where those do not fit; a shape that could not beat the best plan so far
   is passed over.
2. The most promising are improved by moves of layers: by the rows of the plan first, smoothed so that
   every slow device group counts and not the slowest alone, at last by simulation.

Nothing is random, and all limits are counts.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.heuristic.moves import neighbouring_cuts
from stagecut.planner.solvers.interleaved.costs import ChunkCosts, Cost
from stagecut.planner.solvers.interleaved.rows import row_forms
from stagecut.planner.solvers.interleaved.shapes import Shape, floor_s, interleaved_plan, shapes_of
from stagecut.planner.solvers.search.search import Search

MOST_SHAPES = 300
"""Looked at, those of the smallest floor."""
NUM_REFINED, WORTH_REFINING = 8, 1.3
"""So many shapes are improved, none with an estimate above this times the smallest."""
NUM_SIMULATED = 2
"""So many of these once more by simulation."""
MOST_MOVES, MOST_WORK = 40, 2_000_000_000
"""Of one descent, and the stages times rows of all neighbours that it looks at."""
SHARPNESS = 64
"""Of the smooth maximum, a norm of that order."""
MANY_STAGES, MOST_SHIFTED = 32, 4
"""In longer pipelines a move shifts boundaries by so many layers in all."""
LEAST_GAIN = 1e-5
"""Relative gain of a move that is worth taking."""
BATCH, BATCH_ACTIONS = 16, 200_000
"""Neighbours simulated in one call, those of the smallest estimate; fewer where that were too many actions, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sketch:
    """Layers on a shape."""

    shape: Shape
    chunks: ChunkCosts
    rows: Floats
    """Forms, shape (rows, S, costs)."""
    stops: Ints
    """Shape (S,)."""
    seconds: float
    """The largest row."""


def offer_interleaved(search: Search) -> None:
    """Simulate good interleaved plans, if the job allows any."""
    sketches = _sketches(search)
    limit_s = WORTH_REFINING * min((sketch.seconds for sketch in sketches), default=math.inf)
    refined: list[_Sketch] = []
    for sketch in sketches[:NUM_REFINED]:
        if search.out_of_budget or sketch.seconds > limit_s:
            break
        refined.append(_descended(search, sketch))
        _simulate(search, refined[-1], refined[-1].stops[None])
    for sketch in sorted(refined, key=lambda sketch: sketch.seconds)[:NUM_SIMULATED]:
        _polish(search, sketch)


def balanced_stops(before: Floats, num_stages: int) -> Ints:
    """Boundaries nearest to equal shares, with at least one layer for each stage, shape (S,).

    Parameters
    ----------
    before
        Work, or whatever else is to be shared, of the layers before each boundary, shape (L + 1,).
    """
    num_layers, stage = len(before) - 1, np.arange(1, num_stages + 1)
    middles = (before[1:] + before[:-1]) / 2
    nearest = np.searchsorted(middles, stage / num_stages * before[-1])
    nearest[-1] = num_layers
    stops: Ints = np.minimum(np.maximum.accumulate(nearest - stage) + stage, num_layers - num_stages + stage)
    return np.maximum(stops, stage)


def _sketches(search: Search) -> list[_Sketch]:
    """The shapes worth a look, the smallest estimate first; those that do not fit left out."""
    variants = [variant for variant in search.problem.variants if variant.schedule is Schedule.INTERLEAVED]
    shapes = [shape for variant in variants for shape in shapes_of(search.costs.of(variant.share), variant)]
    floors_s = [floor_s(search.costs.of(shape.variant.share), shape) for shape in shapes]
    found: list[_Sketch] = []
    for index in sorted(range(len(shapes)), key=floors_s.__getitem__)[:MOST_SHAPES]:
        if search.out_of_budget or floors_s[index] >= search.best_s:
            break
        sketch = _sketch(search, shapes[index])
        if sketch is not None and sketch.seconds < search.best_s:
            found.append(sketch)
            _simulate(search, sketch, sketch.stops[None])
    return sorted(found, key=lambda sketch: sketch.seconds)


def _sketch(search: Search, shape: Shape) -> _Sketch | None:
    """Chunks of equal work, or else of equal weights; None if neither fits."""
    costs = search.costs.of(shape.variant.share)
    chunks = ChunkCosts(costs, shape)
    shares = (chunks.prefix[0, [Cost.FORWARD, Cost.BACKWARD]].sum(axis=0), chunks.prefix[0, Cost.STATIC])
    cuts = np.array([balanced_stops(share, shape.num_stages) for share in shares])
    fitting = cuts[chunks.settled(cuts)[1]]
    if not len(fitting):
        return None
    rows = row_forms(costs, shape, shared_only=False)
    sketch = _Sketch(shape=shape, chunks=chunks, rows=rows, stops=fitting[0], seconds=math.inf)
    return replace(sketch, seconds=float(_values(sketch, fitting[:1]).max()))


def _values(sketch: _Sketch, stops: Ints) -> Floats:
    """All rows of each cut, infinite where it does not fit, shape (n, rows)."""
    modes, fits = sketch.chunks.settled(stops)
    costs = sketch.chunks.of_cuts(stops, sketch.chunks.modes_of_stages(modes, stops.shape[1]))
    values = np.tensordot(costs, sketch.rows, axes=((1, 2), (1, 2)))
    return np.where(fits[:, None], values, np.inf)


def _smooth(values: Floats) -> Floats:
    """A little above the largest value of each row of a table, the more the more values are near it."""
    largest = values.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = np.where(largest > 0, values / largest, 0.0)
    smooth: Floats = largest[:, 0] * np.linalg.norm(shares, ord=SHARPNESS, axis=1)
    return np.where(np.isfinite(largest[:, 0]), smooth, np.inf)


def _descended(search: Search, sketch: _Sketch) -> _Sketch:
    """Go to the neighbouring cut of the smallest smooth maximum until none is better."""
    stops, least_s = sketch.stops, float(_smooth(_values(sketch, sketch.stops[None]))[0])
    moves = min(MOST_MOVES, MOST_WORK // (len(_neighbours(stops)) * len(stops) * len(sketch.rows) + 1))
    for _ in range(moves):
        cuts = _neighbours(stops)
        smooth_s = _smooth(_values(sketch, cuts)) if len(cuts) else np.array([math.inf])
        if search.out_of_budget or not smooth_s.min() < least_s * (1 - LEAST_GAIN):
            break
        stops, least_s = cuts[smooth_s.argmin()], float(smooth_s.min())
    return replace(sketch, stops=stops, seconds=float(_values(sketch, stops[None]).max()))


def _neighbours(stops: Ints) -> Ints:
    cuts = neighbouring_cuts(stops)
    if len(stops) <= MANY_STAGES:
        return cuts
    near: Ints = cuts[np.abs(cuts - stops).sum(axis=1) <= MOST_SHIFTED]
    return near


def _polish(search: Search, sketch: _Sketch) -> None:
    """Go to the fastest of the most promising neighbours while the simulated time falls."""
    size = min(BATCH, BATCH_ACTIONS // (2 * sketch.shape.num_stages * sketch.shape.variant.num_microbatches))
    if size == 0:
        return
    stops, seconds = sketch.stops, float(_simulate(search, sketch, sketch.stops[None])[0])
    for _ in range(MOST_MOVES):
        cuts = _neighbours(stops)
        if search.out_of_budget or not len(cuts):
            return
        cuts = cuts[np.argsort(_smooth(_values(sketch, cuts)), kind="stable")[:size]]
        times_s = _simulate(search, sketch, cuts)
        if times_s.min() >= seconds * (1 - LEAST_GAIN):
            return
        stops, seconds = cuts[times_s.argmin()], float(times_s.min())


def _simulate(search: Search, sketch: _Sketch, cuts: Ints) -> Floats:
    """Simulated iteration times of cuts, shape (n,); infinite where one does not fit."""
    costs = search.costs.of(sketch.shape.variant.share)
    plans = [interleaved_plan(costs, sketch.shape, stops) for stops in cuts.tolist()]
    times_s = iter(search.offer([plan for plan in plans if plan is not None]))
    return np.array([math.inf if plan is None else next(times_s) for plan in plans])
