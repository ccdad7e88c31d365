"""The best multipliers so far, and what was found there."""

from dataclasses import dataclass, field

import numpy as np

from stagecut.planner.choice_graphs.bounds.dual import Dual, Point
from stagecut.planner.core.numerics.arrays import Floats, Ints


@dataclass(kw_only=True, eq=False)
class Record:
    """What every method that moves multipliers starts from and adds to."""

    dual: Dual
    target: float
    """In the relaxation's units: what the bound might reach; the cost of the best known choice, or a little more."""
    multipliers: Ints = field(init=False)
    value: float = -np.inf
    """The largest bound, not certified."""
    message: Floats = field(init=False)
    """The messages that prove it."""

    def __post_init__(self) -> None:
        self.multipliers = np.zeros(self.dual.relaxation.usage.num_moments, dtype=np.int64)
        self.message = self.dual.message.copy()

    @property
    def aim(self) -> float:
        """The target, or where the best known choice may be far from it, a twentieth more than the best bound."""
        return min(self.target, self.value + max(abs(self.value) / 20, 1.0))

    def tell(self, multipliers: Ints, point: Point) -> bool:
        """Keep a point if it is the best, and say whether it is."""
        is_best = point.value > self.value
        if is_best:
            self.multipliers, self.value, self.message = multipliers, point.value, self.dual.message.copy()
        return is_best

    def slope(self, point: Point) -> Floats:
        """(moments,): rise of the bound in the relaxation's units per unit of each multiplier."""
        slope: Floats = np.ldexp(point.excess, self.dual.relaxation.scaled.scale_bits - self.dual.price_bits)
        return slope

    def whole(self, multipliers: Floats) -> Ints:
        """Multipliers as whole numbers of at least 0 whose sums stay below 2^62."""
        largest = 2.0**62 / max(len(multipliers), 1)
        return np.rint(np.clip(multipliers, 0.0, largest)).astype(np.int64)
