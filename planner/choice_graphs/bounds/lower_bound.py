"""A lower bound on the cost of every legal choice of a large graph."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.bounds.ascent import ascend
from stagecut.planner.choice_graphs.bounds.dual import Dual, Point
from stagecut.planner.choice_graphs.bounds.record import Record
from stagecut.planner.choice_graphs.bounds.relaxation import Relaxation
from stagecut.planner.choice_graphs.building import total_of_dearest
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.numerics.arrays import Floats, Ints

_UNITS = 2.0**46
"""Costs up to the dearest choice of interest are scaled to about this, so that sums of them stay below 2^53."""
_MOST_SCALE_BITS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Bound:
    """A bound and the multipliers that prove it."""

    value: int
    """No legal choice costs less."""
    time: Ints
    """Moments with a positive multiplier."""
    multiplier: Floats
    """Their multipliers: cost per unit of usage at that moment."""
    choices: Ints | None
    """(nodes,): choices that the relaxed problem prefers there; they may exceed the limit."""

    def price(self, graph: ChoiceGraph) -> Floats:
        """(nodes,): cost of a unit of usage by each node, over all moments at which it is alive."""
        total = np.concatenate(([0.0], np.cumsum(self.multiplier)))
        return total[np.searchsorted(self.time, graph.stop)] - total[np.searchsorted(self.time, graph.start)]


def lower_bound(
    graph: ChoiceGraph,
    *,
    upper: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Bound], None] | None = None,
) -> Bound | None:
    """Bound the cost of all legal choices from below, ever better until told to stop.

    Parameters
    ----------
    upper
        Cost of a legal choice, if one is known: dearer options are left out, and the bound ends there.
    stop
        Asked between steps, which take some hundredths of a second on graphs of 65,000 nodes.
    on_progress
        Hears every better bound.

    Returns
    -------
    Bound or None
        None if no choice is legal. Otherwise at most `upper`.
    """
    dearest = min(IMPOSSIBLE - 1, total_of_dearest(graph) if upper is None else upper)
    bits = min(_MOST_SCALE_BITS, math.floor(math.log2(_UNITS / max(dearest, 1))))
    relaxation = Relaxation.of(graph, dearest=dearest, scale_bits=bits)
    if relaxation is None:
        return None if upper is None else _nothing(upper)
    bounding = _Bounding(relaxation, upper=upper, limit=graph.usage_limit, stop=stop, on_progress=on_progress)
    return bounding.run(dearest)


def _nothing(value: int) -> Bound:
    return Bound(value=value, time=np.zeros(0, np.int64), multiplier=np.zeros(0), choices=None)


class _Bounding:
    """The ascent with its best bound certified."""

    def __init__(
        self,
        relaxation: Relaxation,
        *,
        upper: int | None,
        limit: int,
        stop: Callable[[], bool],
        on_progress: Callable[[Bound], None] | None,
    ) -> None:
        self.relaxation, self.upper, self.stop, self.on_progress = relaxation, upper, stop, on_progress
        self.limit = limit
        self.bound = _nothing(0)

    def run(self, dearest: int) -> Bound:
        """Ascend to the end, or until told to stop."""
        # a multiplier of dearest / limit would make full usage as dear as everything else: it gets 40 bits
        price_bits = 40 - math.floor(math.log2(max(dearest, 1) / max(self.limit, 1)))
        dual = Dual(self.relaxation, price_bits=price_bits)
        target = math.ldexp(dearest * 1.001 + 1, self.relaxation.scaled.scale_bits)
        self.record = Record(dual=dual, target=target)
        ascend(self.record, goes_on=self._goes_on)
        return self.bound

    def _goes_on(self, point: Point, is_best: bool) -> bool:
        if is_best:
            self._certify(point)
        return not self.stop() and (self.upper is None or self.bound.value < self.upper)

    def _certify(self, point: Point) -> None:
        record, relaxation = self.record, self.relaxation
        value = record.dual.certified(record.multipliers, record.message)
        if value is None or value <= self.bound.value:
            return
        used = np.flatnonzero(record.multipliers)
        self.bound = Bound(
            value=value if self.upper is None else min(value, self.upper),
            time=relaxation.usage.time[used],
            multiplier=np.ldexp(record.multipliers[used].astype(np.float64), -record.dual.price_bits),
            choices=relaxation.contracted.expand(point.choices),
        )
        if self.on_progress is not None:
            self.on_progress(self.bound)
