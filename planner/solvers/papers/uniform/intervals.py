"""Every stage that a group of devices could hold, as tables over its first layer and the layer after its last."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats
from stagecut.planner.cost.stage_costs import StageCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Stages [start, stop) on a group, in the first recompute mode of the job in which they fit.

    Tables of shape (L + 1, L + 1).
    """

    fits: Bools
    """False also where there is no stage: stop <= start."""
    recompute: Bools
    forward_s: Floats
    """Infinite where nothing fits; likewise the others."""
    backward_s: Floats
    sync_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Every stage that a group of the slowest devices could hold."""

    num_layers: int
    modes: tuple[tuple[bool, StageCosts], ...]
    """Whether to recompute, as the job allows, the preferred first; costs in the order of `numpy.triu_indices`."""
    limit_bytes: float

    def fitting(self, warmup_depth: int) -> Fitting:
        """Which of them fit with that many micro-batches in flight, and what they cost."""
        inside = np.triu_indices(self.num_layers + 1, 1)
        shape = (self.num_layers + 1, self.num_layers + 1)
        fits, recompute = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        seconds = {name: np.full(shape, np.inf) for name in ("forward_s", "backward_s", "sync_s")}
        for mode, costs in self.modes:
            fresh = (costs.memory_bytes(np.array(warmup_depth)) <= self.limit_bytes) & ~fits[inside]
            where = (inside[0][fresh], inside[1][fresh])
            fits[where], recompute[where] = True, mode
            for name, table in seconds.items():
                table[where] = getattr(costs, name)[fresh]
        return Fitting(fits=fits, recompute=recompute, **seconds)
