"""Arc fixing: leaves out the arcs that no plan with all rows at or below T uses.

Often no arc is left, which proves that there is no such plan. Arcs left out make the paths through the others
longer, and better prices of hosts can be found for what remains, so both are repeated while that pays.
"""

from typing import Self

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.network.interval_network import IntervalNetwork
from stagecut.planner.network.pruning import lowest_times
from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.exact.host_prices import best_prices, find_host_prices, prices_of_few
from stagecut.planner.solvers.search.options import StopCheck

WORTHWHILE = 0.95
"""A round that leaves more than this share of the arcs is the last one; 0.9 and 0.975 changed no plan and no bound
on vgg16 and resnet50 on mixed-server-8 and gpt2-345m on dgx-a100-16."""


class ArcFixing:
    """Arc fixing that remembers the prices of hosts from one question to the next."""

    def __init__(self, prices: Floats) -> None:
        self.prices = prices
        """The latest prices of hosts and of a stage, shape (server classes + 1,)."""

    @classmethod
    def without_prices(cls, cluster: Cluster) -> Self:
        """Nothing is known about good prices yet."""
        return cls(np.zeros(len(cluster.servers) + 1))

    def first(self, intervals: IntervalNetwork, limit_s: float, *, stop: StopCheck) -> IntervalNetwork:
        """The stages not ruled out for plans at or below the limit, before they become arcs."""
        for prices in (self.prices, np.zeros_like(self.prices)):
            intervals = intervals.without_late(prices, limit_s)
        while (before := len(intervals)) and not stop():
            self.prices = best_prices(intervals.shortest, intervals.limits, self.prices, stop=stop)
            intervals = intervals.without_late(self.prices, limit_s)
            if len(intervals) > WORTHWHILE * before:
                break
        return intervals

    def remaining(self, rows: Rows, limit_s: float, *, stop: StopCheck) -> tuple[Rows, Ints]:
        """The rows over the arcs not ruled out for plans at or below the limit, and which arcs these are."""
        kept = np.arange(len(rows.network.arcs))
        # Cheap first: the latest prices, and none at all, rule out most arcs before new prices are sought.
        for prices in (self.prices, np.zeros_like(self.prices)):
            rows, kept = _leave_out(rows, kept, prices, limit_s)
        while (before := len(rows.network.graph.by_tail)) and not stop():
            self.prices = find_host_prices(rows, self.prices, stop=stop)
            rows, kept = _leave_out(rows, kept, self.prices, limit_s)
            if len(rows.network.graph.by_tail) > WORTHWHILE * before:
                break
        return _compact(rows, kept)

    def of_hosts(self, rows: Rows, *, stop: StopCheck) -> Floats:
        """Prices of hosts where all of them are left, and where few are, shape (rows, server classes)."""
        return np.vstack((self.prices[:-1], prices_of_few(rows, stop=stop)))


def _leave_out(rows: Rows, kept: Ints, prices: Floats, limit_s: float) -> tuple[Rows, Ints]:
    """Rule out every arc that by itself exceeds the limit; columns are taken anew once most of them count no more."""
    by_tail, fast = rows.network.graph.by_tail, lowest_times(rows, prices, limit_s) <= limit_s
    if fast[by_tail].all():
        return rows, kept
    rows = rows.counting(by_tail[fast[by_tail]])
    return _compact(rows, kept) if 2 * np.count_nonzero(fast) < len(fast) else (rows, kept)


def _compact(rows: Rows, kept: Ints) -> tuple[Rows, Ints]:
    """The rows over the arcs that count alone."""
    by_tail = rows.network.graph.by_tail
    if len(by_tail) == len(kept):
        return rows, kept
    counts = np.zeros(len(kept), dtype=bool)
    counts[by_tail] = True
    network, chosen = rows.network.restricted(counts)
    return rows.restricted(network, chosen), kept[chosen]
