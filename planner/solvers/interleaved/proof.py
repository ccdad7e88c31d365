"""Raising the bound of one interleaved variant, step by step.

The plans of a variant are divided by their shape (device groups, see
:mod:`stagecut.planner.solvers.interleaved.shapes`). The shape with the lowest bound takes the next step, through
four phases:

1. the bound of its average device group;
2. with two chunks, the least largest row of a device group (:mod:`stagecut.planner.solvers.interleaved.two_chunks`),
   after the next phase where that takes many steps;
3. weights on its rows (:mod:`stagecut.planner.solvers.interleaved.relaxation`), and on the critical paths of the cuts
   met on the way (:mod:`stagecut.planner.solvers.interleaved.critical_paths`);
4. branch and bound on its cuts (:mod:`stagecut.planner.solvers.interleaved.branching`), which returns every cut
   whose rows may be below the best plan; these are simulated, and their critical paths are further rows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.numerics.tolerances import LEAST_SCALE_S, REACHED_LIMIT
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.rows import SHARED_FAMILIES
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.interleaved.branching import Branching
from stagecut.planner.solvers.interleaved.costs import ChunkCosts
from stagecut.planner.solvers.interleaved.critical_paths import CriticalPaths
from stagecut.planner.solvers.interleaved.linear_rows import row_forms, ways_home
from stagecut.planner.solvers.interleaved.relaxation import relax
from stagecut.planner.solvers.interleaved.shapes import Shape, floor_s, interleaved_plan, shapes_of
from stagecut.planner.solvers.interleaved.two_chunks import FEW_STEPS, MOST_STEPS, best_walk
from stagecut.planner.solvers.search.options import RowChoice
from stagecut.planner.solvers.search.search import Search

MAX_BATCHES = 8
"""Batches of nodes branched in one step; 4 or 16 changed neither plan nor bound for gpt-mini on mixed-server-8."""


@dataclass(slots=True)
class _OpenShape:
    """A shape that may still hold plans of interest."""

    bound_s: float
    later_bounds_s: Iterator[float]
    """The bound after each further step, as far as it can be proven."""


class InterleavedProof:
    """What is known about one interleaved variant."""

    def __init__(self, search: Search, variant: Variant) -> None:
        self.variant = variant
        self.bound_s = 0.0
        """No plan of the variant is faster, except those already simulated."""
        self.row_bound_s: float | None = None
        """Least value of the shared rows over all plans of the variant, sought only in a search for those rows."""
        self.stalled = False
        """Whether another step would prove nothing."""
        self._search, self._costs = search, search.costs.of(variant.share)
        self._shared_only = search.options.rows is RowChoice.SHARED
        self._least_rows_s = math.inf  # of the plans found so far, where the search is for the shared rows
        self._open: list[_OpenShape] | None = None

    def advance(self) -> None:
        """Take the next step of the shape with the lowest bound."""
        if self._search.best_s == 0 and self._shared_only:
            self.row_bound_s = 0.0
        elif self._open is None:
            bounds_s = [self._bounds(shape) for shape in shapes_of(self._costs, self.variant)]
            self._raise_to([_OpenShape(next(of_shape), of_shape) for of_shape in bounds_s])
        elif self._open and self.bound_s < self._limit_s:
            weakest = min(self._open, key=lambda shape: shape.bound_s)
            bound_s = next(weakest.later_bounds_s, None)
            self.stalled = bound_s is None
            weakest.bound_s = max(weakest.bound_s, bound_s or 0.0)
            self._raise_to(self._open)

    @property
    def _limit_s(self) -> float:
        """Cuts whose rows reach this are of no interest."""
        search = self._search
        if self._shared_only:
            return min(search.best_s * (1 + 2 * REACHED_LIMIT), self._least_rows_s) * (1 - REACHED_LIMIT)
        return search.best_s * (1 - search.options.gap) * (1 - REACHED_LIMIT)

    def _raise_to(self, shapes: list[_OpenShape]) -> None:
        """Drop the shapes without plans of interest; the others leave the least of their bounds open."""
        limit_s = self._limit_s
        self._open = [shape for shape in shapes if shape.bound_s < limit_s]
        self.bound_s = max(self.bound_s, min((shape.bound_s for shape in self._open), default=limit_s))
        if self._shared_only and not self._open and self._least_rows_s < math.inf:
            self.bound_s = self.row_bound_s = self._least_rows_s

    def _bounds(self, shape: Shape) -> Iterator[float]:
        """Bounds on the plans of a shape that are not simulated yet, one for each step of the proof."""
        search, least_s = self._search, floor_s(self._costs, shape)
        yield least_s
        can_walk = shape.variant.chunks == 2 and not self._shared_only
        if can_walk and (walk_s := self._walked(shape, FEW_STEPS)) is not None:
            can_walk = False
            yield walk_s
        paths = None if self._shared_only else CriticalPaths(shape, ways_home(self._costs, shape))
        search.count("interleaved shapes relaxed")
        relaxation = relax(
            *self._chunks_and_rows(shape),
            scale_s=search.best_s if math.isfinite(search.best_s) else max(least_s, LEAST_SCALE_S),
            enough_s=self._limit_s,
            time_limit_s=search.seconds_left,
            stop=lambda: search.out_of_budget,
            paths=paths,
        )
        yield relaxation.bound_s
        if can_walk and (walk_s := self._walked(shape, MOST_STEPS)) is not None:
            yield walk_s
        # Costs and rows are set up again: they are large, and many shapes wait at the line above.
        chunks, rows = self._chunks_and_rows(shape)
        branching = Branching(chunks, np.concatenate((rows, relaxation.found)), relaxation)
        while not branching.overfull:
            cuts = branching.advance(self._limit_s, max_batches=MAX_BATCHES, stop=lambda: search.out_of_budget)
            self._simulate(shape, cuts.tolist())
            if paths is not None:
                branching.learn(cuts, paths)
            yield branching.bound_s

    def _walked(self, shape: Shape, most_steps: int) -> float | None:
        """The bound of the best walk, whose plan is simulated; None if it takes too many steps."""
        chunks, limit_s = ChunkCosts(self._costs, shape), self._limit_s
        walk = best_walk(chunks, limit_s, stop=lambda: self._search.out_of_budget, most_steps=most_steps)
        if walk is None:
            return None
        if walk.stops is not None:
            self._simulate(shape, [walk.stops.tolist()])
        return walk.bound_s

    def _chunks_and_rows(self, shape: Shape) -> tuple[ChunkCosts, Floats]:
        return ChunkCosts(self._costs, shape), row_forms(self._costs, shape, shared_only=self._shared_only)

    def _simulate(self, shape: Shape, cuts: list[list[int]]) -> None:
        """Offer the plans of cuts whose rows are below the limit to the search."""
        families = SHARED_FAMILIES if self._shared_only else None
        plans = [plan for stops in cuts if (plan := interleaved_plan(self._costs, shape, stops)) is not None]
        rows_s = [lower_bound(self._costs.plan(plan), families) for plan in plans]
        limit_s = self._limit_s
        self._search.offer([plan for plan, value_s in zip(plans, rows_s, strict=True) if value_s < limit_s])
        if self._shared_only:
            self._least_rows_s = min([self._least_rows_s, *rows_s])
