"""Layers for a given sequence of device groups, so that the slowest stage is as fast as possible."""

from collections.abc import Sequence

import numpy as np

from planner.core.placement import Placement
from planner.core.problem import Variant
from planner.core.schedule import warmup_depth
from planner.cost.cost_model import CostModel
from planner.cost.plan_costs import Floats
from planner.cost.stage_costs import StageCosts
from planner.network.layout import RECOMPUTE_MODES, Block, Layout
from planner.network.seating import Seat

BISECTIONS = 40
"""Halvings of the range of the slowest stage's time: to one part in 10^12."""


class Balancer:
    """Cuts the layers of one variant for any sequence of seats.

    Every group is filled up to a common time limit per micro-batch, or up to its memory; the
    smallest limit with which the last group ends at the last layer is found by bisection. So groups
    get layers in proportion to their speed, and less where memory is short.
    """

    def __init__(self, costs: CostModel, variant: Variant) -> None:
        self._costs, self.variant = costs, variant
        self._num_layers = costs.problem.model.num_layers
        start, stop = np.triu_indices(self._num_layers + 1, k=1)
        self._start, self._stop = start, stop
        self._intervals: dict[tuple[Placement, bool], StageCosts] = {}
        self._work: dict[tuple[Placement, int], Floats] = {}

    def layout(self, seats: Sequence[Seat]) -> Layout | None:
        """The balanced layout; None if memory or the number of layers does not allow one stage per seat."""
        tables = [self._work_s(seat.placement, len(seats) - index) for index, seat in enumerate(seats)]
        high = float(np.finfo(float).max)
        stops = self._stops(tables, high)
        if stops is None:
            return None
        low, high = 0.0, self._slowest_s(tables, stops)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            tighter = self._stops(tables, middle)
            if tighter is None:
                low = middle
            else:
                stops, high = tighter, self._slowest_s(tables, tighter)
        return tuple(
            Block(stop=stop, placement=seat.placement, opens=seat.opens)
            for stop, seat in zip(stops, seats, strict=True)
        )

    def _stops(self, tables: list[Floats], limit_s: float) -> list[int] | None:
        """Fill one group after another, leaving a layer for each of those to come."""
        stops, start = [], 0
        for index, table in enumerate(tables):
            furthest = int(np.searchsorted(table[start], limit_s, side="right")) - 1
            stop = min(furthest, self._num_layers - (len(tables) - 1 - index))
            if stop <= start:
                return None
            stops.append(stop)
            start = stop
        return stops if start == self._num_layers else None

    def _slowest_s(self, tables: list[Floats], stops: list[int]) -> float:
        starts = [0, *stops]
        return max(float(table[i, j]) for table, i, j in zip(tables, starts, stops, strict=False))

    def _work_s(self, placement: Placement, position: int) -> Floats:
        """F + B of every stage [i, j), infinite where it does not fit in memory; shape (L + 1, L + 1), rows rising."""
        depth = warmup_depth(self.variant.schedule, position, self.variant.num_microbatches)
        if (placement, depth) not in self._work:
            self._work[placement, depth] = self._table(placement, depth)
        return self._work[placement, depth]

    def _table(self, placement: Placement, depth: int) -> Floats:
        limit_bytes = self._costs.stages.device_type(placement).memory_bytes
        work_s = np.full(len(self._start), np.inf)
        for recompute in reversed(RECOMPUTE_MODES[self._costs.problem.job.recompute]):
            stage = self._stages(placement, recompute=recompute)
            fits = stage.memory_bytes(np.array(depth)) <= limit_bytes
            work_s[fits] = (stage.forward_s + stage.backward_s)[fits]
        table = np.full((self._num_layers + 1, self._num_layers + 1), -np.inf)
        table[self._start, self._stop] = work_s
        return table

    def _stages(self, placement: Placement, *, recompute: bool) -> StageCosts:
        key = (placement, recompute)
        if key not in self._intervals:
            self._intervals[key] = self._costs.stages.stages(
                placement,
                micro_batch=self.variant.micro_batch,
                recompute=recompute,
                start=self._start,
                stop=self._stop,
            )
        return self._intervals[key]
