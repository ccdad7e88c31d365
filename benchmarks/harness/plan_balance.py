"""How evenly the stages of a plan are loaded."""

from typing import NamedTuple

from stagecut.planner.cost.plan_costs import PlanCosts


class StageBalance(NamedTuple):
    """Spread of the device groups' seconds per micro-batch; 0 and 1 if all are equal."""

    std_s: float
    """Population standard deviation."""
    max_over_mean: float


def stage_balance(costs: PlanCosts) -> StageBalance:
    """Balance of F + B, including recomputation and exchanges inside a stage.

    Stages that take turns on a device group count together. Messages between stages, gradient
    synchronisation and optimizer steps do not count.
    """
    work_s = (costs.forward_s + costs.backward_s).reshape(costs.variant.chunks, costs.num_devices).sum(axis=0)
    mean_s = float(work_s.mean())
    return StageBalance(
        std_s=float(work_s.std()),
        max_over_mean=float(work_s.max()) / mean_s if mean_s > 0 else 1.0,
    )
