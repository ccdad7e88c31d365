"""What an operator costs under a strategy, on each device of the mesh."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.operators.operators import Operator, Weight
from stagecut.planner.core.operators.strategy import Strategy, WeightStorage
from stagecut.planner.sharding.collectives import Collective, sent_bytes
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.placements import PARTIAL
from stagecut.planner.sharding.strategies import (
    num_parts,
    output_placements,
    weight_gradient_placements,
    weight_placements,
)

BUCKET_BYTES = 25.0 * 2**20
"""Least message of weights or gradients, several of which travel together: the default of torch's
DistributedDataParallel; fully_shard gathers whole blocks, which are rather larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Collectives of one kind of moment."""

    seconds: float = 0.0
    sent_bytes: float = 0.0
    """By each device."""

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(seconds=self.seconds + other.seconds, sent_bytes=self.sent_bytes + other.sent_bytes)


NO_TRAFFIC = Traffic()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightCosts:
    """Bytes of weights on each device, and the collectives that they need."""

    weight_bytes: float = 0.0
    gradient_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    """Optimizer state."""
    gathered_bytes: float = 0.0
    """Weights and gradients that are whole only while they are used."""
    num_updated: float = 0.0
    """Parameters that the device updates."""
    num_summed: float = 0.0
    """Parameters whose gradients are still to be summed over replicas and pipelines of the stage."""
    forward: Traffic = NO_TRAFFIC
    """Per micro-batch."""
    backward: Traffic = NO_TRAFFIC
    """Per micro-batch."""
    sync: Traffic = NO_TRAFFIC
    """Once per iteration."""

    def __add__(self, other: "WeightCosts") -> "WeightCosts":
        return WeightCosts(
            weight_bytes=self.weight_bytes + other.weight_bytes,
            gradient_bytes=self.gradient_bytes + other.gradient_bytes,
            optimizer_bytes=self.optimizer_bytes + other.optimizer_bytes,
            gathered_bytes=self.gathered_bytes + other.gathered_bytes,
            num_updated=self.num_updated + other.num_updated,
            num_summed=self.num_summed + other.num_summed,
            forward=self.forward + other.forward,
            backward=self.backward + other.backward,
            sync=self.sync + other.sync,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCosts:
    """An operator on each device of the mesh."""

    parts: int
    """Into how many parts its computation is divided."""
    saved_bytes: float
    """Kept from forward to backward, per micro-batch."""
    working_bytes: float
    """Additional bytes while it runs."""
    weights: WeightCosts


def operator_costs(
    operator: Operator, strategy: Strategy, mesh: Mesh, *, samples: float, optimizer: Optimizer, element_bytes: int
) -> OperatorCosts:
    """Costs of an operator for a micro-batch of `samples` on the mesh.

    - Computation is divided by the parts of the loop.
    - A saved tensor is held as the operator leaves it: where the next one needs more of it, that is gathered again for
      the backward, beside computation. Partial sums are held whole.
    - Weights: see :func:`weight_costs`.

    `element_bytes` is the size of a parameter in the model's precision.
    """
    splits, weights = strategy.splits, WeightCosts()
    for weight in operator.weights:
        weights = weights + weight_costs(weight, strategy, mesh, optimizer=optimizer, element_bytes=element_bytes)
    saved = (
        tensor.num_bytes / mesh.parts(output_placements(tensor, splits)) for tensor in operator.outputs if tensor.saved
    )
    parts = num_parts(splits, mesh.sizes)
    return OperatorCosts(
        parts=parts,
        saved_bytes=samples * sum(saved),
        working_bytes=samples * operator.working_bytes / parts + weights.gathered_bytes,
        weights=weights,
    )


def weight_costs(
    weight: Weight, strategy: Strategy, mesh: Mesh, *, optimizer: Optimizer, element_bytes: int
) -> WeightCosts:
    """Bytes and collectives of a weight.

    With P parameters left on a device after sharding by the loop, and s the product of the axes over which gradients
    are summed:

    | storage | weights, gradients, state held | forward | backward | once per iteration |
    |---|---|---|---|---|
    | replicated | P, P, P | | | reduce-scatter and all-gather of gradients: an all-reduce |
    | optimizer | P, P, P / s | | | reduce-scatter of gradients, all-gather of weights |
    | gradients | P, P / s, P / s | | reduce-scatter of gradients | all-gather of weights |
    | weights | P / s, P / s, P / s | all-gather of weights | the same, reduce-scatter of gradients | |

    What is held in parts but used whole needs room for P more while the operator runs. Reduce-scatters over several
    axes are one after another, innermost axis first, each on what the one before left; all-gathers are the way back:
    what crosses the outermost links is smallest. Replicas and pipelines of the stage sum P / s gradients in between.
    """
    splits, storage = strategy.splits, strategy.storage
    num = weight.num_bytes / element_bytes / mesh.parts(weight_placements(weight, splits))
    summed = [axis for axis, own in enumerate(weight_gradient_placements(weight, splits)) if own is PARTIAL]
    part = num / math.prod(mesh.sizes[axis] for axis in summed)
    num_weights, num_gradients, num_states = _held(storage, num, part)
    forward, backward, sync = _traffic(storage, num, _traffic_over(mesh, summed), optimizer)
    return WeightCosts(
        weight_bytes=num_weights * optimizer.weight_bytes,
        gradient_bytes=num_gradients * optimizer.gradient_bytes,
        optimizer_bytes=num_states * optimizer.state_bytes,
        gathered_bytes=(num if num_weights < num else 0.0) * optimizer.weight_bytes
        + (num if num_gradients < num else 0.0) * optimizer.gradient_bytes,
        num_updated=num_states,
        num_summed=part,
        forward=forward,
        backward=backward,
        sync=sync,
    )


def _held(storage: WeightStorage, num: float, part: float) -> tuple[float, float, float]:
    """Parameters of which a device holds the weights, the gradients and the optimizer state."""
    return {
        WeightStorage.REPLICATED: (num, num, num),
        WeightStorage.OPTIMIZER: (num, num, part),
        WeightStorage.GRADIENTS: (num, part, part),
        WeightStorage.WEIGHTS: (part, part, part),
    }[storage]


def _traffic(
    storage: WeightStorage, num: float, over: Callable[[Collective, float], Traffic], optimizer: Optimizer
) -> tuple[Traffic, Traffic, Traffic]:
    """Collectives of the forward, of the backward, and once per iteration."""
    gather = over(Collective.ALL_GATHER, num * optimizer.weight_bytes)
    scatter = over(Collective.REDUCE_SCATTER, num * optimizer.gradient_bytes)
    gather_gradients = over(Collective.ALL_GATHER, num * optimizer.gradient_bytes)
    return {
        WeightStorage.REPLICATED: (NO_TRAFFIC, NO_TRAFFIC, scatter + gather_gradients),
        WeightStorage.OPTIMIZER: (NO_TRAFFIC, NO_TRAFFIC, scatter + gather),
        WeightStorage.GRADIENTS: (NO_TRAFFIC, scatter, gather),
        WeightStorage.WEIGHTS: (gather, gather + scatter, NO_TRAFFIC),
    }[storage]


def _traffic_over(mesh: Mesh, axes: list[int]) -> Callable[[Collective, float], Traffic]:
    """Reduce-scatters or all-gathers over several axes of a tensor that every device has whole before or after.

    It travels in buckets with others: if it is smaller, it takes its part of the time of one.
    """

    def traffic(collective: Collective, num_bytes: float) -> Traffic:
        total, bucket = NO_TRAFFIC, max(num_bytes, BUCKET_BYTES)
        share = num_bytes / bucket
        for axis in reversed(axes):
            total = total + Traffic(
                seconds=share * mesh.axes[axis].seconds(collective, bucket),
                sent_bytes=share * sent_bytes(collective, mesh.sizes[axis], bucket),
            )
            bucket /= mesh.sizes[axis]
        return total

    return traffic
