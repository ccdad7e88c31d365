"""Which device groups of a shape do their all-reduces on the same link."""

from enum import IntEnum

import numpy as np

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import route_between, sync_route
from stagecut.planner.solvers.interleaved.shapes import Shape


class Queue(IntEnum):
    """What the all-reduces of a device group share with those of the one before it."""

    NONE = 0
    LINK = 1
    """A link."""
    GRADIENT = 2
    """A link that the last gradient of the first device group on it takes as well, behind the first all-reduces of the
    others: these are ready sooner."""


def queues_of(costs: CostModel, shape: Shape) -> Ints:
    """Values of :class:`Queue` for each device group, shape (D,)."""
    routes = [sync_route(costs.cluster, group, costs.share) for group in shape.groups]
    queues, first = np.full(shape.num_groups, Queue.NONE, dtype=np.int64), 0
    ordered = _takes_time(costs, shape)
    for group in range(1, shape.num_groups):
        if not routes[group] or routes[group] != routes[group - 1]:
            first = group
            continue
        leaving = route_between(costs.cluster, *(shape.groups[at] for at in (first, first - 1))) if first > 0 else ()
        meets = ordered and not set(leaving).isdisjoint(routes[group])
        queues[group] = Queue.GRADIENT if meets else Queue.LINK
    return queues


def _takes_time(costs: CostModel, shape: Shape) -> bool:
    """Whether every backward takes time: otherwise the order of what is ready before and after it is not known."""
    layers = np.arange(costs.problem.model.num_layers)
    alone = costs.stages.stages(
        shape.placement, micro_batch=shape.variant.micro_batch, recompute=False, start=layers, stop=layers + 1
    )
    return bool(alone.backward_s.all())
