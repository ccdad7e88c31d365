"""Good interleaved plans in seconds.

1. The shapes of all interleaved variants, the potentially fastest first, get chunks of equal work, or
   of equal weights if those do not fit; shapes that cannot beat the best plan so far are skipped.
2. The most promising are improved by moves of layers, by the rows of the plan, smoothed so that
   all slow device groups count and not just the slowest. The best of them is then improved by simulation.

Nothing is random, and all limits are counts.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.heuristic.local_search import BATCH, BATCH_ACTIONS
from stagecut.planner.solvers.heuristic.moves import neighbouring_cuts
from stagecut.planner.solvers.interleaved.costs import ChunkCosts, Cost
from stagecut.planner.solvers.interleaved.linear_rows import row_forms
from stagecut.planner.solvers.interleaved.shapes import Shape, floor_s, interleaved_plan, shapes_of
from stagecut.planner.solvers.search.search import Search

# Half or twice each of these changed none of 8 plans, but for SHARPNESS = 16, which made one of them 0.2 % faster.
MOST_SHAPES = 300
"""Shapes tried, by their floors; without it, WORTH_REFINING and BATCH_ACTIONS: same plans, 80 % more time."""
NUM_REFINED, WORTH_REFINING = 8, 1.3
"""Shapes improved at most, and their largest estimate relative to the smallest."""
MOST_WORK = 2_000_000_000
"""Stages times rows of all neighbours evaluated in one descent, which bounds its seconds."""
SHARPNESS = 64
"""Order of the norm that serves as a smooth maximum."""
MOST_SHIFTED = 8
"""Layers by which a move shifts boundaries in total; bounds the neighbours of long pipelines."""
LEAST_GAIN = 1e-5
"""Relative gain of a move that is worth taking; with 1e-4, one of 10 plans is 0.05 % slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A shape with its layers."""

    shape: Shape
    chunks: ChunkCosts
    rows: Floats
    """Rows as linear forms, shape (rows, S, costs)."""
    stops: Ints
    """Shape (S,)."""
    seconds: float
    """The largest row."""


def offer_interleaved(search: Search) -> None:
    """Simulate good interleaved plans, if the job allows any."""
    candidates = _candidates(search)
    limit_s = WORTH_REFINING * min((candidate.seconds for candidate in candidates), default=math.inf)
    refined: list[_Candidate] = []
    for candidate in candidates[:NUM_REFINED]:
        if search.out_of_budget or candidate.seconds > limit_s:
            break
        refined.append(_descended(search, candidate))
        _simulate(search, refined[-1], refined[-1].stops[None])
    if refined:
        _polish(search, min(refined, key=lambda candidate: candidate.seconds))


def equal_share_stops(before: Floats, num_stages: int) -> Ints:
    """Boundaries nearest to equal shares, with at least one layer for each stage, shape (S,).

    `before` sums the quantity to share, such as work, over the layers before each boundary, shape (L + 1,).
    """
    num_layers, stage = len(before) - 1, np.arange(1, num_stages + 1)
    middles = (before[1:] + before[:-1]) / 2
    nearest = np.searchsorted(middles, stage / num_stages * before[-1])
    nearest[-1] = num_layers
    stops: Ints = np.minimum(np.maximum.accumulate(nearest - stage) + stage, num_layers - num_stages + stage)
    return np.maximum(stops, stage)


def _candidates(search: Search) -> list[_Candidate]:
    """The shapes that fit and might beat the best plan, the smallest estimate first."""
    variants = [variant for variant in search.problem.variants if variant.schedule is Schedule.INTERLEAVED]
    shapes = [shape for variant in variants for shape in shapes_of(search.costs.of(variant.share), variant)]
    floors_s = [floor_s(search.costs.of(shape.variant.share), shape) for shape in shapes]
    found: list[_Candidate] = []
    for index in sorted(range(len(shapes)), key=floors_s.__getitem__)[:MOST_SHAPES]:
        if search.out_of_budget or floors_s[index] >= search.best_s:
            break
        candidate = _candidate(search, shapes[index])
        if candidate is not None and candidate.seconds < search.best_s:
            found.append(candidate)
            _simulate(search, candidate, candidate.stops[None])
    return sorted(found, key=lambda candidate: candidate.seconds)


def _candidate(search: Search, shape: Shape) -> _Candidate | None:
    """Chunks of equal work, otherwise of equal weights; None if neither fits."""
    costs = search.costs.of(shape.variant.share)
    chunks = ChunkCosts(costs, shape)
    shares = (chunks.prefix[0, [Cost.FORWARD, Cost.BACKWARD]].sum(axis=0), chunks.prefix[0, Cost.STATIC])
    cuts = np.array([equal_share_stops(share, shape.num_stages) for share in shares])
    fitting = cuts[chunks.settled(cuts)[1]]
    if not len(fitting):
        return None
    rows = row_forms(costs, shape, shared_only=False)
    candidate = _Candidate(shape=shape, chunks=chunks, rows=rows, stops=fitting[0], seconds=math.inf)
    return replace(candidate, seconds=float(_values(candidate, fitting[:1]).max()))


def _values(candidate: _Candidate, stops: Ints) -> Floats:
    """All rows of each cut, infinite where it does not fit, shape (n, rows)."""
    modes, fits = candidate.chunks.settled(stops)
    costs = candidate.chunks.of_cuts(stops, modes)
    values = np.tensordot(costs, candidate.rows, axes=((1, 2), (1, 2)))
    return np.where(fits[:, None], values, np.inf)


def _smooth(values: Floats) -> Floats:
    """A smooth maximum of each row: above the largest value by the more, the more values are close to it."""
    largest = values.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = np.where(largest > 0, values / largest, 0.0)
    smooth: Floats = largest[:, 0] * np.linalg.norm(shares, ord=SHARPNESS, axis=1)
    return np.where(np.isfinite(largest[:, 0]), smooth, np.inf)


def _descended(search: Search, candidate: _Candidate) -> _Candidate:
    """Go to the neighbouring cut with the smallest smooth maximum until none is better."""
    stops, least_s = candidate.stops, float(_smooth(_values(candidate, candidate.stops[None]))[0])
    for _ in range(MOST_WORK // (len(_neighbours(stops)) * len(stops) * len(candidate.rows) + 1)):
        cuts = _neighbours(stops)
        smooth_s = _smooth(_values(candidate, cuts)) if len(cuts) else np.array([math.inf])
        if search.out_of_budget or not smooth_s.min() < least_s * (1 - LEAST_GAIN):
            break
        stops, least_s = cuts[smooth_s.argmin()], float(smooth_s.min())
    return replace(candidate, stops=stops, seconds=float(_values(candidate, stops[None]).max()))


def _neighbours(stops: Ints) -> Ints:
    cuts = neighbouring_cuts(stops)
    near: Ints = cuts[np.abs(cuts - stops).sum(axis=1) <= MOST_SHIFTED]
    return near


def _polish(search: Search, candidate: _Candidate) -> None:
    """Go to the fastest of the most promising neighbours while the simulated time falls."""
    size = min(BATCH, BATCH_ACTIONS // (2 * candidate.shape.num_stages * candidate.shape.variant.num_microbatches))
    if size == 0:
        return
    stops, seconds = candidate.stops, float(_simulate(search, candidate, candidate.stops[None])[0])
    while len(cuts := _neighbours(stops)) and not search.out_of_budget:
        cuts = cuts[np.argsort(_smooth(_values(candidate, cuts)), kind="stable")[:size]]
        times_s = _simulate(search, candidate, cuts)
        if times_s.min() >= seconds * (1 - LEAST_GAIN):
            return
        stops, seconds = cuts[times_s.argmin()], float(times_s.min())


def _simulate(search: Search, candidate: _Candidate, cuts: Ints) -> Floats:
    """Simulated iteration times of cuts, shape (n,); infinite where one does not fit."""
    costs = search.costs.of(candidate.shape.variant.share)
    return search.offer_possible([interleaved_plan(costs, candidate.shape, stops) for stops in cuts.tolist()])
