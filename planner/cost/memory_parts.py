"""What fills the memory of the devices of a plan."""

from dataclasses import astuple, dataclass
from functools import reduce
from operator import add

import numpy as np

from stagecut.planner.core.interleaving import in_flight
from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.operators.strategy import StageSharding
from stagecut.planner.core.plan import Plan, Stage
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.meshes import mesh_of
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.sharding.operator_costs import WeightCosts, weight_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts:
    """Bytes on each device of a stage when it holds the most."""

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    """Moments, and the fp32 copy of the weights in mixed precision."""
    activations_bytes: float
    """Kept from forwards to their backwards."""
    working_bytes: float
    """Needed only while a micro-batch is computed."""

    @property
    def total_bytes(self) -> float:
        """All of them."""
        return float(sum(astuple(self)))


def memory_parts(costs: CostModel, plan: Plan, found: PlanCosts) -> tuple[MemoryParts, ...]:
    """The parts of `found.memory_bytes`, stage by stage; stages that share devices have the same.

    `found` are the costs of the plan, `costs` those of its problem for any share.
    """
    own, num_groups = costs.of(plan.share), found.num_devices
    weights = [_weights(own, *each) for each in zip(plan.stages, found.static_bytes.tolist(), strict=True)]
    groups = [_of_group(found, group, weights[group::num_groups]) for group in range(num_groups)]
    return tuple(groups[index % num_groups] for index in range(found.num_stages))


def _of_group(found: PlanCosts, group: int, weights: list[tuple[float, float, float]]) -> MemoryParts:
    weights_bytes, gradients_bytes, optimizer_bytes = map(sum, zip(*weights, strict=True))
    activations_bytes, working_bytes = _peak(found, group)
    return MemoryParts(
        weights_bytes=weights_bytes,
        gradients_bytes=gradients_bytes,
        optimizer_bytes=optimizer_bytes,
        activations_bytes=activations_bytes,
        working_bytes=working_bytes,
    )


def _peak(found: PlanCosts, group: int) -> tuple[float, float]:
    """Activations and working bytes of a device group at its fullest; see :attr:`PlanCosts.memory_bytes`."""
    order = found.interleaving
    if order is None:
        return float(found.warmup_depth[group] * found.saved_bytes[group]), float(found.working_bytes[group])
    stages = slice(group, None, order.num_devices)
    held, chunk = in_flight(order, group)
    saved: Floats = held @ found.saved_bytes[stages]
    working: Floats = found.working_bytes[stages][chunk]
    fullest = int(np.argmax(saved + working))
    return float(saved[fullest]), float(working[fullest])


def _weights(costs: CostModel, stage: Stage, static_bytes: float) -> tuple[float, float, float]:
    """Weights, gradients and optimizer state of a stage, which add up to its static bytes."""
    if stage.sharding is not None:
        whole = _sharded(costs, stage, stage.sharding)
        return whole.weight_bytes, whole.gradient_bytes, static_bytes - whole.weight_bytes - whole.gradient_bytes
    job = costs.problem.job
    holders = stage.replicas * costs.share.num_pipelines if job.zero1 else 1
    per_parameter = (job.optimizer.weight_bytes, job.optimizer.gradient_bytes, job.optimizer.state_bytes / holders)
    held_bytes = sum(per_parameter)
    params = static_bytes / held_bytes if held_bytes else 0.0
    weights, gradients, state = (params * size for size in per_parameter)
    return weights, gradients, state


def _sharded(costs: CostModel, stage: Stage, sharding: StageSharding) -> WeightCosts:
    """All weights of a stage whose devices divide its operators."""
    model, job = costs.problem.model, costs.problem.job
    mesh = mesh_of(costs.cluster, costs.device_group(stage).placement, sharding.mesh, costs.share)
    found = (
        weight_costs(weight, strategy, mesh, optimizer=job.optimizer, element_bytes=model.precision.num_bytes)
        for layer, chosen in zip(model.layers[stage.start : stage.stop], sharding.layers, strict=True)
        for operator, strategy in zip(operators_of(layer), chosen.operators, strict=True)
        for weight in operator.weights
    )
    return reduce(add, found, WeightCosts())
