"""Steps of a proximal bundle method: what it knows about the bound are tangents at the points asked so far."""

import numpy as np

from stagecut.planner.choice_graphs.bounds.dual import Point
from stagecut.planner.choice_graphs.bounds.mixing import mixture
from stagecut.planner.choice_graphs.bounds.record import Record
from stagecut.planner.core.numerics.arrays import Floats, Ints

_MOST_CUTS = 60
_INNER_STEPS = 300
_LONGER, _SHORTER = 2.0, 0.8
_PATIENCE = 20
"""Points without a rise worth mentioning before the method gives up;"""
_WORTH = 1e-3
"""a rise by that share of the way to the record's aim is."""


class Bundle:
    """Tangents around the best point.

    Answers are not exact: messages have not converged, and choices are rounded off. A tangent that lies below the
    best value at the best point is tilted until it does not.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        num_moments = len(record.multipliers)
        self._center, self._value = record.multipliers, -np.inf
        self._slopes: Floats = np.zeros((0, num_moments))
        self._errors: Floats = np.zeros(0)
        """How far each tangent lies above the best value at the best point."""
        self._weights: Floats = np.zeros(0)
        self._active: Ints = np.zeros(0, dtype=np.int64)
        """Moments whose multipliers may be positive."""
        self._step = 0.0
        self._waited = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the last points brought next to nothing."""
        return self._waited >= _PATIENCE

    def tell(self, multipliers: Ints, point: Point, *, is_best: bool) -> None:
        """Add the tangent at a point, which becomes the center if it is the best; adapt the length of steps."""
        slope = self._record.slope(point)
        way = (multipliers - self._center).astype(np.float64)
        is_best = is_best or len(self._errors) == 0
        error = 0.0
        if is_best:
            self._move(multipliers, point.value, way)
        else:
            self._waited += 1
            error = point.value - float(slope @ way) - self._value
            slope = slope + min(error, 0.0) / max(float(way @ way), 1.0) * way
        self._keep(slope, max(error, 0.0))
        self._step = self._step * (_LONGER if is_best else _SHORTER) or self._first_step(slope)

    def _move(self, center: Ints, value: float, way: Floats) -> None:
        rise = value - self._value if len(self._errors) else 0.0
        self._waited = 0 if rise > _WORTH * (self._record.aim - value) else self._waited + 1
        self._errors = np.maximum(self._errors + self._slopes @ way - rise, 0.0)
        self._center, self._value = center, value

    def _keep(self, slope: Floats, error: float) -> None:
        kept = np.argsort(-self._weights, kind="stable")[: _MOST_CUTS - 1]
        self._slopes = np.vstack((self._slopes[kept], slope))
        self._errors = np.append(self._errors[kept], error)
        self._weights = np.append(self._weights[kept], 0.0 if len(kept) else 1.0)

    def _first_step(self, slope: Floats) -> float:
        """As far as would raise the bound to the target along the steepest moment if it were linear."""
        steep = float((slope**2).max(initial=0.0))
        return max(self._record.target - self._value, 1.0) / steep if steep > 0 else 1.0

    def next(self) -> Ints:
        """Mix the tangents; moments where the mixture exceeds the limit most become active."""
        for _ in range(3):
            self._activate()
            active = np.ascontiguousarray(self._slopes[:, self._active])
            center = self._center[self._active].astype(np.float64)
            self._weights = mixture(active, self._errors, center, self._step, self._weights, _INNER_STEPS)
        moved = np.zeros(len(self._center))
        moved[self._active] = center + self._step * (self._weights @ active)
        return self._record.whole(moved)

    def _activate(self) -> None:
        """Add the moments of positive multipliers, and the one of the largest mixed slope if that is positive."""
        mixed = self._weights @ self._slopes
        self._active = np.union1d(self._active, np.flatnonzero(self._center))
        mixed[self._active] = 0.0
        worst = int(mixed.argmax())
        if mixed[worst] > 0:
            self._active = np.union1d(self._active, [worst])
