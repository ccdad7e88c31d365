"""Ways to cut the layers of one interleaved shape, judged by their rows or simulated."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.solvers.heuristic.moves import neighbouring_cuts
from stagecut.planner.solvers.interleaved.costs import ChunkCosts
from stagecut.planner.solvers.interleaved.linear_rows import row_forms
from stagecut.planner.solvers.interleaved.shapes import Shape, interleaved_plan
from stagecut.planner.solvers.search.search import Search

SHARPNESS = 64
"""Order of the norm that serves as a smooth maximum; half or twice this: the same 8 plans, one 0.2 % faster with 16."""
MOST_SHIFTED = 8
"""Layers by which a move shifts boundaries in total; bounds the neighbours of long pipelines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """The cuts of a shape; each is an array of stops, several have shape (n, S)."""

    shape: Shape
    chunks: ChunkCosts
    rows: Floats
    """Rows as linear forms, shape (rows, S, costs)."""

    @classmethod
    def of(cls, costs: CostModel, shape: Shape) -> "Cuts":
        """The cuts of a shape; `costs` are those of its share."""
        return cls(shape=shape, chunks=ChunkCosts(costs, shape), rows=row_forms(costs, shape, shared_only=False))

    def largest_row(self, stops: Ints) -> float:
        """Of one cut, in seconds; infinite where it does not fit."""
        return float(self._values(stops[None]).max())

    def smooth_rows(self, cuts: Ints) -> Floats:
        """A smooth maximum of the rows of each cut, shape (n,), in seconds.

        It is above the largest row by the more, the more rows are close to that.
        """
        values = self._values(cuts)
        largest = values.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            shares = np.where(largest > 0, values / largest, 0.0)
        smooth: Floats = largest[:, 0] * np.linalg.norm(shares, ord=SHARPNESS, axis=1)
        return np.where(np.isfinite(largest[:, 0]), smooth, np.inf)

    def simulated(self, search: Search, cuts: Ints) -> Floats:
        """Simulated iteration times, shape (n,), of plans offered to the search; infinite where one does not fit."""
        costs = search.costs.of(self.shape.variant.share)
        return search.offer_possible([interleaved_plan(costs, self.shape, stops) for stops in cuts.tolist()])

    def _values(self, cuts: Ints) -> Floats:
        """All rows of each cut, infinite where it does not fit, shape (n, rows)."""
        modes, fits = self.chunks.settled(cuts)
        values = np.tensordot(self.chunks.of_cuts(cuts, modes), self.rows, axes=((1, 2), (1, 2)))
        return np.where(fits[:, None], values, np.inf)


def near(stops: Ints) -> Ints:
    """Neighbours of a cut, shape (n, S)."""
    cuts = neighbouring_cuts(stops)
    found: Ints = cuts[np.abs(cuts - stops).sum(axis=1) <= MOST_SHIFTED]
    return found
