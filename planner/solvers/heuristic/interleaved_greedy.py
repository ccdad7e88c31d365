"""Good interleaved plans in seconds.

1. The shapes of all interleaved variants, the potentially fastest first, get chunks of equal work, or
   of equal weights if those do not fit; shapes that cannot beat the best plan so far are skipped.
2. The most promising are improved by moves of layers, by the rows of the plan, smoothed so that
   all slow device groups count and not just the slowest.
3. Those near the best plan are improved by simulation, and further as long as there is time:
   :mod:`stagecut.planner.solvers.heuristic.interleaved_polish`.

Limits are counts; the only random numbers are those of the last step, which depend on the seed.
"""

import math
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.heuristic.interleaved_cuts import Cuts, near
from stagecut.planner.solvers.heuristic.interleaved_polish import InterleavedPolish
from stagecut.planner.solvers.interleaved.costs import Cost
from stagecut.planner.solvers.interleaved.shapes import Shape, floor_s, shapes_of
from stagecut.planner.solvers.search.search import Search

# Half or twice each of these changed none of 8 plans.
MOST_SHAPES = 300
"""Shapes tried, by their floors; without it and WORTH_REFINING: same plans, 80 % more time."""
NUM_REFINED, WORTH_REFINING = 8, 1.3
"""Shapes improved at most, and their largest estimate relative to the smallest."""
MOST_WORK = 2_000_000_000
"""Stages times rows of all neighbours evaluated in one descent, which bounds its seconds."""
LEAST_GAIN = 1e-5
"""Relative gain of a move that is worth taking; with 1e-4, one of 10 plans is 0.05 % slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A shape with its layers."""

    cuts: Cuts
    stops: Ints
    """Shape (S,)."""
    seconds: float
    """The largest row."""


def offer_interleaved(search: Search) -> InterleavedPolish | None:
    """Simulate good interleaved plans, if the job allows any; return what may be improved further."""
    candidates = _candidates(search)
    limit_s = WORTH_REFINING * min((candidate.seconds for candidate in candidates), default=math.inf)
    refined: list[tuple[Cuts, Ints, float]] = []
    for candidate in candidates[:NUM_REFINED]:
        if search.out_of_budget or candidate.seconds > limit_s:
            break
        stops = _descended(search, candidate)
        refined.append((candidate.cuts, stops, float(candidate.cuts.simulated(search, stops[None])[0])))
    if not refined:
        return None
    polish = InterleavedPolish(refined, search.options.seed)
    polish.improve(search)
    return polish


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
            candidate.cuts.simulated(search, candidate.stops[None])
    return sorted(found, key=lambda candidate: candidate.seconds)


def _candidate(search: Search, shape: Shape) -> _Candidate | None:
    """Chunks of equal work, otherwise of equal weights; None if neither fits."""
    cuts = Cuts.of(search.costs.of(shape.variant.share), shape)
    prefix = cuts.chunks.prefix[0]
    shares = (prefix[[Cost.FORWARD, Cost.BACKWARD]].sum(axis=0), prefix[Cost.STATIC])
    even = np.array([equal_share_stops(share, shape.num_stages) for share in shares])
    fitting = even[cuts.chunks.settled(even)[1]]
    if not len(fitting):
        return None
    return _Candidate(cuts=cuts, stops=fitting[0], seconds=cuts.largest_row(fitting[0]))


def _descended(search: Search, candidate: _Candidate) -> Ints:
    """Go to the neighbouring cut with the smallest smooth maximum until none is better; return the last one."""
    cuts, stops = candidate.cuts, candidate.stops
    least_s = float(cuts.smooth_rows(stops[None])[0])
    for _ in range(MOST_WORK // (len(near(stops)) * len(stops) * len(cuts.rows) + 1)):
        neighbours = near(stops)
        smooth_s = cuts.smooth_rows(neighbours) if len(neighbours) else np.array([math.inf])
        if search.out_of_budget or not smooth_s.min() < least_s * (1 - LEAST_GAIN):
            break
        stops, least_s = neighbours[smooth_s.argmin()], float(smooth_s.min())
    return stops
