"""How long the last gradients and the all-reduces of a plan take, in the queues of the links that they share."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.cost.plan_costs import PlanCosts


def ways_home(costs: PlanCosts) -> Floats:
    """Least seconds from the end of each stage's last backward to the end of the iteration, shape (S,).

    Notes
    -----
    The last gradients and the all-reduces become ready stage by stage, from the last stage to the first, and at one
    stage the gradient first. So they are served in this order on every link, and each starts no sooner than the one
    before it on any of its links ends. Of a stage whose backward takes no time, nothing is known of that order.
    """
    num_stages = costs.num_stages
    # Row by row for each stage to start from; minus infinity: no chain leads from there to here.
    end_s = np.where(np.eye(num_stages, dtype=bool), 0.0, -np.inf)
    home_s, free_s = np.full(num_stages, -np.inf), dict[str, Floats]()
    for stage in reversed(range(num_stages)):
        if costs.backward_s[stage] == 0:
            free_s = {}
        ready_s = end_s[:, stage]
        if stage > 0:
            route, takes_s = costs.backward_links[stage - 1], costs.transfer_s[stage - 1]
            arrival_s = served(free_s, route, ready_s, takes_s)
            end_s[:, stage - 1] = np.maximum(end_s[:, stage - 1], arrival_s + costs.backward_s[stage - 1])
        reduced_s = served(free_s, costs.sync_links[stage], ready_s, costs.sync_s[stage])
        home_s = np.maximum(home_s, reduced_s + costs.update_s[stage])
    return home_s


def served(free_s: dict[str, Floats], route: tuple[str, ...], ready_s: Floats, takes_s: float) -> Floats:
    """When a task on these links ends; `free_s`: when each link has served all tasks before it."""
    served_s: Floats = np.maximum.reduce([ready_s, *(free_s[link] for link in route if link in free_s)]) + takes_s
    free_s.update(dict.fromkeys(route, served_s))
    return served_s
