"""The chains of work along a pipeline from which every bound row is made."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.cost.plan_costs import PlanCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """One micro-batch on its own in a pipeline of S stages."""

    forward_before: Floats
    """PF: from the start to the arrival of the first part of a micro-batch at each stage, shape (S,)."""
    first_s: Floats
    """Forward of the first part of a micro-batch on each stage, shape (S,)."""
    whole_before: Floats
    """PF of a whole micro-batch, shape (S,); the same where none is halved."""
    backward_before: Floats
    """PB: from the end of each stage's backward to the end of the first stage's, shape (S,)."""
    total: float
    """Seconds of the round trip."""
    tail_s: Floats
    """g: all-reduce and optimizer step of each stage, shape (S,)."""
    halved_s: Floats
    """What two halves of a forward take beyond a whole one on each stage, shape (S,)."""
    num_halved: Ints
    """How many of the first micro-batches each stage surely forwards in halves, shape (S,)."""

    @property
    def activations_ready(self) -> Floats:
        """When the first activation, or the first part of one, is ready for each boundary, shape (S - 1,)."""
        ready_s: Floats = (self.forward_before + self.first_s)[:-1]
        return ready_s

    @property
    def gradients_ready(self) -> Floats:
        """When the first gradient is ready for each boundary, shape (S - 1,)."""
        ready_s: Floats = (self.total - self.backward_before)[1:]
        return ready_s

    @property
    def halving_s(self) -> Floats:
        """What the halved forwards of each stage take beyond whole ones, shape (S,)."""
        return self.num_halved * self.halved_s

    def passage_s(self, forward_s: Floats, ahead: Ints | int) -> Floats:
        """Seconds of so many forwards, the first of their stages, on every stage; shape (..., S) with `ahead` (...)."""
        ahead = np.asarray(ahead)[..., None]
        seconds: Floats = ahead * forward_s + np.minimum(ahead, self.num_halved) * self.halved_s
        return seconds


def chains_of(costs: PlanCosts, *, any_slicing: bool = False) -> Chains:
    """Sums of the times of a plan; with `any_slicing` they hold for every sliced warm-up count."""
    backward_s, transfer_s = costs.backward_s, costs.transfer_s
    first_s, crossing_s = _first_parts(costs, any_slicing=any_slicing)
    return Chains(
        forward_before=_exclusive_sums(first_s[:-1] + crossing_s),
        first_s=first_s,
        whole_before=_exclusive_sums(costs.forward_s[:-1] + transfer_s),
        backward_before=_exclusive_sums(backward_s[:-1] + transfer_s),
        total=float(np.sum(first_s + backward_s) + np.sum(crossing_s + transfer_s)),
        tail_s=costs.sync_s + costs.update_s,
        halved_s=_halved_s(costs),
        num_halved=np.array(costs.num_halved if costs.num_halved and not any_slicing else [0] * costs.num_stages),
    )


def _halved_s(costs: PlanCosts) -> Floats:
    if costs.halves is None:
        return np.zeros(costs.num_stages)
    can_halve = np.isfinite(costs.halves.forward_s)
    return np.maximum(0.0, np.where(can_halve, 2 * costs.halves.forward_s, costs.forward_s) - costs.forward_s)


def _first_parts(costs: PlanCosts, *, any_slicing: bool) -> tuple[Floats, Floats]:
    """Least seconds that the first part of a micro-batch spends on each stage and each boundary.

    On the last stage the whole micro-batch counts: its backward waits for both halves.
    """
    halves = costs.halves
    if halves is None or not (any_slicing or costs.num_halved):
        return costs.forward_s, costs.transfer_s
    halving = np.isfinite(halves.forward_s) & (any_slicing | (halves.num_halved > 0))
    first_s = np.where(halving, np.minimum(halves.forward_s, costs.forward_s), costs.forward_s)
    first_s[-1] = costs.forward_s[-1]
    return first_s, np.minimum(halves.transfer_s, costs.transfer_s)


def _exclusive_sums(values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))
