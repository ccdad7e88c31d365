"""When an interleaved iteration can end at the earliest, given the ends of the last backwards.

Of D device groups the last one is done first: the last gradient of each goes to the one before it. What is on a link
then is served in this order (docs/bounds.md): the all-reduce of the first stage of each device group and, before it,
that last gradient. The all-reduces of the further stages come at some time after the first one of their device group.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.ways_home import served


def earliest_end_s(costs: PlanCosts, last_backward_s: Floats) -> float:
    """Seconds of the whole iteration, from bounds on the ends of the last backward of each stage, shape (S,)."""
    num_devices, end_s = costs.num_devices, last_backward_s.copy()
    for stage in reversed(range(num_devices, costs.num_stages)):
        end_s[stage - 1] = max(
            end_s[stage - 1], end_s[stage] + costs.transfer_s[stage - 1] + costs.backward_s[stage - 1]
        )
    shape = (costs.variant.chunks, num_devices)
    # A round of backwards of each earlier chunk follows the last one of a chunk.
    end_s[:num_devices] = (end_s.reshape(shape) + rounds_s(costs.backward_s.reshape(shape))).max(axis=0)
    sync_s, update_s = costs.sync_s.reshape(shape), costs.update_s.reshape(shape).sum(axis=0)
    iteration_s, free_s = 0.0, dict[str, Floats]()
    for device in reversed(range(num_devices)):
        ready_s = end_s[device : device + 1]
        if costs.backward_s[device] == 0:
            free_s = {}
        if device > 0:
            takes_s = costs.transfer_s[device - 1]
            arrival_s = served(free_s, costs.backward_links[device - 1], ready_s, takes_s)[0]
            end_s[device - 1] = max(end_s[device - 1], arrival_s + costs.backward_s[device - 1])
        first_s = served(free_s, costs.sync_links[device], ready_s, sync_s[0, device])[0]
        iteration_s = max(iteration_s, first_s + sync_s[1:, device].sum() + update_s[device])
        if not costs.backward_s[:device].all():
            first_s = ready_s[0] + sync_s[0, device]
        for link in costs.sync_links[device]:
            users = [s for s, route in enumerate(costs.sync_links) if s % num_devices <= device and link in route]
            left_s = costs.sync_s[users].sum() - sync_s[0, device]
            iteration_s = max(iteration_s, first_s + left_s + min(update_s[user % num_devices] for user in users))
    return iteration_s


def rounds_s(work_s: Floats) -> Floats:
    """One round, a micro-batch for every device group, of all earlier chunks on the device group of a stage.

    Takes the seconds of a micro-batch on each stage; both have shape (v, D).
    """
    rounds: Floats = work_s.shape[1] * (np.cumsum(work_s, axis=0) - work_s)
    return rounds
