"""Arc fixing: leaves out the arcs that no plan with all rows at or below T uses; often none is left, a proof.

Arcs left out make the ways through the others longer, and better prices of hosts can be found for
what remains, so both are repeated while that pays.
"""

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.network.pruning import lowest_times
from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.exact.host_prices import find_host_prices
from stagecut.planner.solvers.search.options import StopCheck

WORTHWHILE = 0.95
"""A round that leaves more than this share of the arcs is the last one."""
COMPACT = 0.7
"""Below this share of usable arcs the others are taken out of the arrays at once."""


class ArcFixing:
    """Remembers the prices of hosts from one question to the next.

    Attributes
    ----------
    prices
        The latest prices of hosts and of a stage, shape (server classes + 1,).
    """

    def __init__(self, num_classes: int, stop: StopCheck) -> None:
        self.prices: Floats = np.zeros(num_classes + 1)
        self._stop = stop

    def remaining(self, rows: Rows, limit_s: float) -> tuple[Rows, Ints]:
        """The rows over the arcs not ruled out for plans at or below the limit, and which arcs these are."""
        left = _Remaining(rows)
        for prices in (self.prices, np.zeros_like(self.prices)):
            left.leave_out(prices, limit_s)
        while left.count and not self._stop():
            before = left.count
            self.prices = find_host_prices(left.rows, self.prices, usable=left.usable, stop=self._stop)
            left.leave_out(self.prices, limit_s)
            if left.count > WORTHWHILE * before:
                break
        left.compact()
        return left.rows, left.kept


class _Remaining:
    """The arcs not ruled out so far: marked first, taken out of the arrays where that pays."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.kept = np.arange(len(rows.network.arcs))
        self.usable = np.ones(len(self.kept), dtype=bool)

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.usable))

    def leave_out(self, prices: Floats, limit_s: float) -> None:
        """Rule out every arc that by itself exceeds the limit."""
        if len(self.kept) == 0:
            return
        self.usable &= lowest_times(self.rows, prices, self.usable) <= limit_s
        if self.count < COMPACT * len(self.usable):
            self.compact()

    def compact(self) -> None:
        if self.usable.all():
            return
        network, chosen = self.rows.network.restricted(self.usable)
        self.rows, self.kept = self.rows.restricted(network, chosen), self.kept[chosen]
        self.usable = np.ones(len(chosen), dtype=bool)
