"""Steps along averaged slopes: slower than a bundle, but with answers that are not exact it gets further."""

import numpy as np

from stagecut.planner.choice_graphs.bounds.dual import Point
from stagecut.planner.choice_graphs.bounds.record import Record
from stagecut.planner.core.numerics.arrays import Floats, Ints

_MEMORY = 0.7
"""Share of the averaged slope that a step keeps."""
_PATIENCE = 20
"""Steps without a better bound before the steps get shorter and start again from the best multipliers."""
_SHORTER = 0.7
_SHORTEST = 1e-5


class Volume:
    """Steps of Polyak's length towards the record's aim, as in the volume algorithm of Barahona and Anbil (2000)."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._multipliers = record.multipliers.astype(np.float64)
        self._slope: Floats | None = None
        self._length = 0.5
        self._waited = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether steps are too short to lead anywhere."""
        return self._length < _SHORTEST

    def tell(self, multipliers: Ints, point: Point, *, is_best: bool) -> None:
        """Take the slope at a point into the average."""
        slope = self._record.slope(point)
        self._slope = slope if self._slope is None else _MEMORY * self._slope + (1 - _MEMORY) * slope
        self._waited = 0 if is_best else self._waited + 1
        if self._waited >= _PATIENCE:
            self._length, self._waited = self._length * _SHORTER, 0
            self._multipliers = self._record.multipliers.astype(np.float64)
        self._step(self._slope, self._length * max(self._record.aim - point.value, 0.0))

    def next(self) -> Ints:
        """Where to ask next."""
        return self._record.whole(self._multipliers)

    def _step(self, slope: Floats, rise: float) -> None:
        """Go as far along the slope as would raise the bound by `rise` if it were linear."""
        useful = np.where((self._multipliers <= 0) & (slope < 0), 0.0, slope)
        steep = float((useful**2).sum())
        if steep > 0:
            self._multipliers = np.maximum(self._multipliers + rise / steep * useful, 0.0)
