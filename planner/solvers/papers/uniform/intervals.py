"""Costs of every stage on a device group, in tables over its first layer and the layer after its last."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.numerics.arrays import Bools, Floats
from stagecut.planner.cost.stage_costs import StageCosts, first_fitting


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalTimes:
    """Times of stages [start, stop) in the first recompute mode in which they fit, shape (L + 1, L + 1) each."""

    recompute: Bools
    forward_s: Floats
    """Infinite where nothing fits or there is no stage, stop <= start, like the other times."""
    backward_s: Floats
    sync_s: Floats

    @property
    def work_s(self) -> Floats:
        """Forward and backward."""
        return self.forward_s + self.backward_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Costs of every stage that a group of the slowest devices could hold."""

    num_layers: int
    modes: tuple[tuple[bool, StageCosts], ...]
    """Each allowed recompute mode, preferred first, with costs in the order of `numpy.triu_indices`."""
    limit_bytes: float

    def fitting(self, warmup_depth: int) -> IntervalTimes:
        """Which stages fit with that many micro-batches in flight, and their times."""
        inside = np.triu_indices(self.num_layers + 1, 1)
        shape = (self.num_layers + 1, self.num_layers + 1)
        recompute = np.zeros(shape, dtype=bool)
        seconds = {name: np.full(shape, np.inf) for name in ("forward_s", "backward_s", "sync_s")}
        for mode, costs, fresh in first_fitting(self.modes, np.array(warmup_depth), self.limit_bytes):
            where = (inside[0][fresh], inside[1][fresh])
            recompute[where] = mode
            for name, table in seconds.items():
                table[where] = getattr(costs, name)[fresh]
        return IntervalTimes(recompute=recompute, **seconds)


def held_weight_bytes(model: ModelProfile) -> Floats:
    """Bytes of the weights that each layer holds, those it shares with another layer included, shape (L,)."""
    return np.array([layer.params_bytes + layer.shared_params_bytes for layer in model.layers])


def interval_sums(values: Floats) -> Floats:
    """Sums over the layers [i, j) of L values, shape (L + 1, L + 1); meaningless below the diagonal."""
    prefix = np.concatenate(([0.0], np.cumsum(values)))
    return prefix[None, :] - prefix[:, None]
