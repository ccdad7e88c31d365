"""Arc fixing: leaves out the arcs that no plan with all rows at or below T uses.

Often no arc is left, which proves that there is no such plan. Arcs left out make the paths through the others
longer, and better prices of hosts can be found for what remains, so both are repeated while that pays.
"""

from typing import Self

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import PATH_SUM
from stagecut.planner.network.arcs import Arcs
from stagecut.planner.network.interval_network import IntervalNetwork
from stagecut.planner.network.pruning import left_by_arcs
from stagecut.planner.network.rows import Rows
from stagecut.planner.network.stage_network import by_mode, with_depths
from stagecut.planner.solvers.exact.host_prices import best_prices, find_host_prices, prices_of_few
from stagecut.planner.solvers.search.options import StopCheck

WORTHWHILE = 0.95
"""A round that leaves more than this share of the positions of arcs is the last one; 0.9 and 0.975 changed no plan and
no bound on vgg16 and resnet50 on mixed-server-8 and gpt2-345m on dgx-a100-16."""


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
        """The rows over the arcs not ruled out for plans at or below the limit, and which arcs these are.

        Without positions, arcs are left with fewer numbers of stages to come as well.
        """
        # Cheap first: the latest prices, and none at all, rule out most arcs before new prices are sought.
        rows, kept = self._without_new_prices(rows, limit_s)
        if rows.network.has_positions:
            rows, found = self._with_new_prices(rows, limit_s, stop=stop)
            return rows, kept[found]
        network, numbers = by_mode(rows.network, longest_s=limit_s * (1 + PATH_SUM))
        parts, some = self._without_new_prices(rows.rebuilt(network), limit_s)
        parts, found = self._with_new_prices(parts, limit_s, stop=stop)
        rows, found = _narrowed(rows, parts.network.arcs, numbers[some[found]], limit_s)
        return rows, kept[found]

    def _without_new_prices(self, rows: Rows, limit_s: float) -> tuple[Rows, Ints]:
        kept = np.arange(len(rows.network.arcs))
        for prices in (self.prices, np.zeros_like(self.prices)):
            rows, kept = _leave_out(rows, kept, prices, limit_s)
        return _compact(rows, kept)

    def _with_new_prices(self, rows: Rows, limit_s: float, *, stop: StopCheck) -> tuple[Rows, Ints]:
        kept = np.arange(len(rows.network.arcs))
        while (before := rows.network.num_positions) and not stop():
            self.prices = find_host_prices(rows, self.prices, stop=stop)
            rows, kept = _leave_out(rows, kept, self.prices, limit_s)
            if rows.network.num_positions > WORTHWHILE * before:
                break
        return _compact(rows, kept)

    def of_hosts(self, rows: Rows, *, stop: StopCheck) -> Floats:
        """Prices of hosts where all of them are left, and where few are, shape (rows, server classes)."""
        return np.vstack((self.prices[:-1], prices_of_few(rows, stop=stop)))


def _leave_out(rows: Rows, kept: Ints, prices: Floats, limit_s: float) -> tuple[Rows, Ints]:
    """Rule out every arc that by itself exceeds the limit; columns are taken anew once most of them count no more."""
    before, (_, least, largest) = rows.network.num_positions, left_by_arcs(rows, prices, limit_s)
    rows = rows.counting(least, largest)
    if rows.network.num_positions == before:
        return rows, kept
    return _compact(rows, kept) if 2 * len(rows.network.graph.by_tail) < len(kept) else (rows, kept)


def _narrowed(rows: Rows, parts: Arcs, numbers: Ints, limit_s: float) -> tuple[Rows, Ints]:
    """The rows over the arcs that have parts left, with the positions of these."""
    network, num_arcs = rows.network, len(rows.network.arcs)
    least, largest = np.full(num_arcs, len(network.depths) - 1), np.zeros(num_arcs, dtype=np.int64)
    np.minimum.at(least, numbers, parts.least_position)
    np.maximum.at(largest, numbers, parts.largest_position)
    network, kept = network.narrowed(least, largest).restricted(least <= largest)
    network, found = with_depths(network, longest_s=limit_s * (1 + PATH_SUM))
    return rows.rebuilt(network), kept[found]


def _compact(rows: Rows, kept: Ints) -> tuple[Rows, Ints]:
    """The rows over the arcs that count alone."""
    by_tail = rows.network.graph.by_tail
    if len(by_tail) == len(kept):
        return rows, kept
    counts = np.zeros(len(kept), dtype=bool)
    counts[by_tail] = True
    network, chosen = rows.network.restricted(counts)
    return rows.restricted(network, chosen), kept[chosen]
