"""Multipliers that make the bound large: a subgradient method."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from stagecut.planner.choice_graphs.bounds.dual import Dual, Point
from stagecut.planner.core.arrays import Floats, Ints

FIRST_SWEEPS, SWEEPS = 40, 5
_MEMORY = 0.7
"""Share of the averaged slope that a step keeps."""
_PATIENCE = 20
"""Steps without a better bound before the steps get shorter and start again from the best multipliers."""
_SHORTER = 0.7
_SHORTEST = 1e-5


@dataclass(kw_only=True, eq=False)
class Ascent:
    """Steps along averaged slopes, of Polyak's length towards a target.

    Much like the volume algorithm of Barahona and Anbil (2000), without its primal side.
    """

    dual: Dual
    target: float
    """In the relaxation's units; the cost of the best known choice, or a little more."""
    best: Ints = field(init=False)
    """Multipliers of the largest bound."""
    best_value: float = -np.inf
    message: Floats = field(init=False)
    """The messages that go with them."""

    def __post_init__(self) -> None:
        self.best = np.zeros(self.dual.relaxation.moments.num_moments, dtype=np.int64)
        self.message = self.dual.message.copy()

    def run(self, *, goes_on: Callable[[Point, bool], bool]) -> None:
        """Step until told to stop, or steps are too short; the callback hears each point and if it was the best."""
        multipliers = np.zeros(len(self.best))
        length, waited, sweeps = 0.5, 0, FIRST_SWEEPS
        slope: Floats | None = None
        while length > _SHORTEST:
            numbers = np.rint(multipliers).astype(np.int64)
            point = self.dual.ask(numbers, sweeps=sweeps)
            sweeps = SWEEPS
            is_best = point.value > self.best_value
            waited = 0 if is_best else waited + 1
            if is_best:
                self.best, self.best_value, self.message = numbers, point.value, self.dual.message.copy()
            if not goes_on(point, is_best) or len(numbers) == 0:
                return
            slope = point.excess if slope is None else _MEMORY * slope + (1 - _MEMORY) * point.excess
            if waited >= _PATIENCE:
                length, waited, multipliers = length * _SHORTER, 0, self.best.astype(np.float64)
            multipliers = self._step(multipliers, slope, length * max(self.target - point.value, 0.0))

    def _step(self, multipliers: Floats, slope: Floats, rise: float) -> Floats:
        """Go as far along the slope as would raise the bound by `rise` if it were linear."""
        r = self.dual.relaxation
        useful = np.where((multipliers <= 0) & (slope < 0), 0.0, slope)
        steep = float((useful**2).sum())
        if steep == 0:
            return multipliers
        step = np.ldexp(rise / steep, self.dual.price_bits - r.scale_bits) * useful
        moved: Floats = np.clip(multipliers + step, 0.0, self._largest())
        return moved

    def _largest(self) -> float:
        """No multiplier is larger, so that their sums stay below 2^62."""
        return 2.0**62 / max(len(self.best), 1)
