"""Chains of work along a pipeline that every bound row is made of."""

from dataclasses import dataclass

import numpy as np

from planner.cost.plan_costs import Floats, PlanCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """One micro-batch on its own in a pipeline of S stages."""

    forward_before: Floats
    """PF: from the first forward to the arrival at each stage, shape (S,)."""
    backward_before: Floats
    """PB: from the end of each stage's backward to that of the first stage's, shape (S,)."""
    total: float
    """Seconds of the whole round trip."""
    tail_s: Floats
    """g: all-reduce and optimizer step of each stage, shape (S,)."""


def chains_of(costs: PlanCosts) -> Chains:
    """Add the times of a plan up."""
    forward_s, backward_s, transfer_s = costs.forward_s, costs.backward_s, costs.transfer_s
    return Chains(
        forward_before=_exclusive_sums(forward_s[:-1] + transfer_s),
        backward_before=_exclusive_sums(backward_s[:-1] + transfer_s),
        total=float(np.sum(forward_s + backward_s) + 2 * np.sum(transfer_s)),
        tail_s=costs.sync_s + costs.update_s,
    )


def _exclusive_sums(values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))
