"""Raising the bound of one interleaved variant, step by step.

The variant's shapes (device groups, see :mod:`planner.solvers.interleaved.shapes`) are ruled out one by
one, always the one of the lowest bound next: first by its average device group, then by weights on its
rows (:mod:`planner.solvers.interleaved.relaxation`), at last by branching on its cuts
(:mod:`planner.solvers.interleaved.branching`), which hands out every cut whose rows may be below the
best plan; these are simulated.
"""

import math

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.rows import SHARED_FAMILIES
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.interleaved.branching import Branching
from stagecut.planner.solvers.interleaved.costs import ChunkCosts
from stagecut.planner.solvers.interleaved.relaxation import Relaxation, relax
from stagecut.planner.solvers.interleaved.rows import row_forms
from stagecut.planner.solvers.interleaved.shapes import Shape, floor_s, interleaved_plan, shapes_of
from stagecut.planner.solvers.search.options import RowChoice
from stagecut.planner.solvers.search.search import Search

TOLERANCE = 1e-10
"""Relative: bounds that come so near to a limit count as reaching it, so that equal plans are not all looked at."""
SMALLEST_S = 1e-12
"""Stands for an iteration time of zero where a scale is needed."""
MAX_BLOCKS = 8
"""Blocks branched in one step."""


class InterleavedProof:
    """What is known about one interleaved variant.

    Attributes
    ----------
    bound_s
        No plan of the variant is faster, save those already simulated.
    row_bound_s
        Least value of the shared rows over all plans of the variant, once known; looked for only
        where the search is for those rows.
    stalled
        Whether another step would prove nothing.
    """

    def __init__(self, search: Search, variant: Variant) -> None:
        self.variant = variant
        self.bound_s = 0.0
        self.row_bound_s: float | None = None
        self.stalled = False
        self._search = search
        self._shared = search.options.rows is RowChoice.SHARED
        self._judge = _Judge(search, variant)
        self._parts: list[_ShapeProof] | None = None

    @property
    def row_floor_s(self) -> float:
        """No plan of the variant has smaller rows."""
        return self.bound_s if self.row_bound_s is None else self.row_bound_s

    def advance(self) -> None:
        """Take the next step of the shape with the lowest bound."""
        if self._search.best_s == 0 and self._shared:
            self.row_bound_s = 0.0
        elif self._parts is None:
            costs = self._search.costs.of(self.variant.share)
            self._parts = [_ShapeProof(self._judge, shape) for shape in shapes_of(costs, self.variant)]
            self._note(self._parts)
        elif self._parts and self.bound_s < self._judge.limit_s:
            weakest = min(self._parts, key=lambda part: part.bound_s)
            weakest.advance()
            self.stalled = weakest.stalled
            self._note(self._parts)

    def _note(self, parts: list["_ShapeProof"]) -> None:
        """Forget the shapes without plans of interest, and see what the others leave open."""
        limit_s = self._judge.limit_s
        parts[:] = [part for part in parts if part.bound_s < limit_s]
        self.bound_s = max(self.bound_s, min((part.bound_s for part in parts), default=limit_s))
        if self._shared and not parts and self._judge.least_rows_s < math.inf:
            self.bound_s = self.row_bound_s = self._judge.least_rows_s


class _Judge:
    """Simulates cuts, and says which ones are still of interest.

    Attributes
    ----------
    least_rows_s
        Least shared rows of the variant's plans met, where the search is for those.
    """

    def __init__(self, search: Search, variant: Variant) -> None:
        self.search, self.costs = search, search.costs.of(variant.share)
        self.shared_only = search.options.rows is RowChoice.SHARED
        self.least_rows_s = math.inf

    @property
    def limit_s(self) -> float:
        """Cuts whose rows reach this are of no interest."""
        search = self.search
        if self.shared_only:
            return min(search.best_s * (1 + 2 * TOLERANCE), self.least_rows_s) * (1 - TOLERANCE)
        return search.best_s * (1 - search.options.gap) * (1 - TOLERANCE)

    def look_at(self, shape: Shape, cuts: list[list[int]]) -> None:
        """Simulate the plans of cuts whose rows are below the limit."""
        families = SHARED_FAMILIES if self.shared_only else None
        plans = [plan for stops in cuts if (plan := interleaved_plan(self.costs, shape, stops)) is not None]
        rows_s = [lower_bound(self.costs.plan(plan), families) for plan in plans]
        limit_s = self.limit_s
        self.search.offer([plan for plan, value_s in zip(plans, rows_s, strict=True) if value_s < limit_s])
        if self.shared_only:
            self.least_rows_s = min([self.least_rows_s, *rows_s])


class _ShapeProof:
    """What is known about one shape: see :class:`InterleavedProof`."""

    def __init__(self, judge: _Judge, shape: Shape) -> None:
        self.bound_s = floor_s(judge.costs, shape)
        self.stalled = False
        self._judge, self._shape = judge, shape
        self._relaxation: Relaxation | None = None
        self._branching: Branching | None = None

    def advance(self) -> None:
        """Find weights, or branch."""
        if self._relaxation is None:
            self._relaxation = self._relaxed()
            self.bound_s = max(self.bound_s, self._relaxation.bound_s)
            return
        search, judge = self._judge.search, self._judge
        if self._branching is None:
            self._branching = Branching(*self._costs_and_rows(), self._relaxation)
        cuts = self._branching.advance(judge.limit_s, max_blocks=MAX_BLOCKS, stop=lambda: search.out_of_budget)
        judge.look_at(self._shape, cuts.tolist())
        self.stalled = self._branching.overfull
        self.bound_s = max(self.bound_s, self._branching.bound_s)

    def _costs_and_rows(self) -> tuple[ChunkCosts, Floats]:
        costs, shape = self._judge.costs, self._shape
        return ChunkCosts(costs, shape), row_forms(costs, shape, shared_only=self._judge.shared_only)

    def _relaxed(self) -> Relaxation:
        search = self._judge.search
        search.count("interleaved shapes relaxed")
        return relax(
            *self._costs_and_rows(),
            scale_s=search.best_s if math.isfinite(search.best_s) else max(self.bound_s, SMALLEST_S),
            enough_s=self._judge.limit_s,
            time_limit_s=search.seconds_left,
            stop=lambda: search.out_of_budget,
        )
