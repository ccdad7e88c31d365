"""Seconds of gradient all-reduces and optimizer steps."""

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import Share
from stagecut.planner.cost.collectives import gradient_sync_of


class WeightUpdates:
    """What happens once per iteration on the devices of a placement; `cluster` is one pipeline's share."""

    def __init__(self, problem: Problem, share: Share, cluster: Cluster, placement: Placement) -> None:
        job, island = problem.job, cluster.servers[placement.server_class].islands[placement.island]
        self._optimizer, self._zero1 = job.optimizer, job.zero1
        self._bytes_per_s = cluster.device_type(island.device_type).memory_bandwidth_bytes_per_s
        self.all_reduce = gradient_sync_of(cluster, placement, share)
        """Over the replicas of all pipelines."""
        self.num_holders = placement.replicas * share.num_pipelines if job.zero1 else 1
        """Among how many replicas the optimizer state is divided."""

    @property
    def message_bytes(self) -> float:
        """Bytes all-reduced per parameter."""
        gradient_bytes = self._optimizer.gradient_bytes
        return (gradient_bytes + self._optimizer.weight_bytes) / 2 if self._zero1 else gradient_bytes

    def sync_s(self, num_params: Floats) -> Floats:
        """Seconds of the all-reduce of the gradients of so many parameters."""
        return self.all_reduce.seconds(num_params * self.message_bytes)

    def update_s(self, num_params: Floats) -> Floats:
        """Seconds of the optimizer step."""
        touched_bytes = (
            2 * (self._optimizer.weight_bytes + self._optimizer.state_bytes) + self._optimizer.gradient_bytes
        )
        seconds: Floats = np.asarray(num_params * touched_bytes / self.num_holders / self._bytes_per_s)
        return seconds

    def held_bytes(self, weight_bytes: Floats, gradient_bytes: Floats, state_bytes: Floats) -> Floats:
        """Weights, gradients and what is left of the optimizer state."""
        return weight_bytes + gradient_bytes + state_bytes / self.num_holders
