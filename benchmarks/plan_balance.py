"""How evenly the stages of a plan compute."""

from typing import NamedTuple

from stagecut.planner.cost.plan_costs import PlanCosts


class StageBalance(NamedTuple):
    """Spread of the seconds that device groups compute per micro-batch; 0 and 1 where all are alike."""

    std_s: float
    """Standard deviation of the population, not of a sample."""
    max_over_mean: float


def stage_balance(costs: PlanCosts) -> StageBalance:
    """Balance of forward plus backward, recomputation and exchanges inside a stage included.

    Stages that take turns on a device group count together. Messages between stages, gradient
    synchronisation and optimizer steps do not count.
    """
    work_s = (costs.forward_s + costs.backward_s).reshape(costs.variant.chunks, costs.num_devices).sum(axis=0)
    mean_s = float(work_s.mean())
    return StageBalance(
        std_s=float(work_s.std()),
        max_over_mean=float(work_s.max()) / mean_s if mean_s > 0 else 1.0,
    )
