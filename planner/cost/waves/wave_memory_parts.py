"""What fills the memory of the devices of virtual workers."""

import numpy as np

from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.memory_parts import MemoryParts
from stagecut.planner.cost.waves.wave_costs import WaveCostModel, WorkerCosts


def wave_memory_parts(model: WaveCostModel, plan: WavePlan, found: WorkerCosts) -> tuple[MemoryParts, ...]:
    """The parts of `found.memory_bytes`, stage by stage, for a worker of the plan.

    Weights are all versions of them; gradients those of a minibatch and the update that is not pushed yet.
    """
    optimizer, worker = model.problem.job.optimizer, found.worker
    extra_bytes = model.extra_bytes_per_param(worker.in_flight, local_step=plan.local_step)
    params = found.static_bytes / ((optimizer.total_bytes + extra_bytes) or np.inf)
    num_versions = worker.in_flight if plan.local_step is LocalStep.MINIBATCH else 1
    weights, state = params * num_versions * optimizer.weight_bytes, params * optimizer.state_bytes
    columns = (weights, found.static_bytes - weights - state, state, found.activation_bytes, found.working_bytes)
    return tuple(
        MemoryParts(
            weights_bytes=weights_bytes,
            gradients_bytes=gradients_bytes,
            optimizer_bytes=optimizer_bytes,
            activations_bytes=activations_bytes,
            working_bytes=working_bytes,
        )
        for weights_bytes, gradients_bytes, optimizer_bytes, activations_bytes, working_bytes in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )
