"""Times and memory of stages, as arrays over any set of layer intervals at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from planner.core.cluster import DeviceType
from planner.core.placement import Placement
from planner.core.problem import Problem
from planner.cost.collectives import ring_all_reduce_s, ring_link
from planner.cost.layer_times import layer_times
from planner.cost.plan_costs import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Costs of n stages on one placement, per micro-batch and per device, each of shape (n,)."""

    forward_s: Floats
    backward_s: Floats
    sync_s: Floats
    update_s: Floats
    static_bytes: Floats
    saved_bytes: Floats
    working_bytes: Floats

    def memory_bytes(self, warmup_depth: Ints) -> Floats:
        """High-water mark with that many micro-batches in flight: static + k * saved + working, shape (n,)."""
        return self.static_bytes + warmup_depth * self.saved_bytes + self.working_bytes


class StageCostModel:
    """Stage costs of one problem.

    Every additive quantity is a difference of prefix sums over the layers, every peak a table over
    all intervals; both are computed once.
    """

    def __init__(self, problem: Problem) -> None:
        model = problem.model
        self._problem = problem
        self._times: dict[tuple[str, float], tuple[Floats, Floats]] = {}
        held_bytes = [layer.params_bytes + layer.shared_params_bytes for layer in model.layers]
        self._params = _prefix_sums(np.array(held_bytes) / model.precision.num_bytes)
        self._saved_bytes = _prefix_sums([layer.saved_bytes for layer in model.layers])
        self._input_bytes = _prefix_sums(model.boundary_bytes()[:-1])
        self._largest_saved_bytes = _range_maxima([layer.saved_bytes for layer in model.layers])
        self._largest_working_bytes = _range_maxima([layer.working_bytes for layer in model.layers])

    def device_type(self, placement: Placement) -> DeviceType:
        """The kind of device a placement uses."""
        cluster = self._problem.cluster
        island = cluster.servers[placement.server_class].islands[placement.island]
        return cluster.device_type(island.device_type)

    def stages(self, placement: Placement, *, micro_batch: int, recompute: bool, start: Ints, stop: Ints) -> StageCosts:
        """Costs of the stages [start, stop) on a placement, start and stop of shape (n,).

        Each replica computes micro_batch / replicas samples of every micro-batch.

        - F, B: sums over the layers; with recompute, B grows by F.
        - static: parameters x bytes of weights, gradients and optimizer state.
        - saved, per micro-batch in flight: the sum of `saved_bytes`; with recompute only the inputs
          of the layers (each layer is its own checkpoint: Chen et al., arXiv 1604.06174).
        - working: the largest `working_bytes`, with recompute on top of the largest `saved_bytes`.
        - sync: ring all-reduce of the gradients over the replicas.
        - update: weights and state read and written, gradients read, at memory bandwidth.
        """
        samples = micro_batch / placement.replicas
        device = self.device_type(placement)
        forward_prefix, backward_prefix = self._time_prefixes(device, samples)
        forward_s = forward_prefix[stop] - forward_prefix[start]
        backward_s = backward_prefix[stop] - backward_prefix[start]
        params = self._params[stop] - self._params[start]
        saved_prefix = self._input_bytes if recompute else self._saved_bytes
        working_bytes = self._largest_working_bytes[start, stop]
        if recompute:
            working_bytes = working_bytes + self._largest_saved_bytes[start, stop]
        optimizer = self._problem.job.optimizer
        touched_bytes = 2 * (optimizer.weight_bytes + optimizer.state_bytes) + optimizer.gradient_bytes
        return StageCosts(
            forward_s=forward_s,
            backward_s=backward_s + forward_s if recompute else backward_s,
            sync_s=self._sync_s(placement, params),
            update_s=params * touched_bytes / device.memory_bandwidth_bytes_per_s,
            static_bytes=params * optimizer.total_bytes,
            saved_bytes=samples * (saved_prefix[stop] - saved_prefix[start]),
            working_bytes=samples * working_bytes,
        )

    def _sync_s(self, placement: Placement, params: Floats) -> Floats:
        link = ring_link(self._problem.cluster, placement)
        gradients_bytes = params * self._problem.job.optimizer.gradient_bytes
        return ring_all_reduce_s(gradients_bytes, placement.replicas, link)

    def _time_prefixes(self, device: DeviceType, samples: float) -> tuple[Floats, Floats]:
        key = (device.name, samples)
        if key not in self._times:
            forward_s, backward_s = layer_times(self._problem.model, device, samples)
            self._times[key] = (_prefix_sums(forward_s), _prefix_sums(backward_s))
        return self._times[key]


def _prefix_sums(values: ArrayLike) -> Floats:
    return np.concatenate(([0.0], np.cumsum(np.asarray(values, dtype=float))))


def _range_maxima(values: ArrayLike) -> Floats:
    """Entry [i, j] is the maximum of values[i:j], zero where that is empty."""
    items = np.asarray(values, dtype=float)
    size = len(items)
    table = np.zeros((size + 1, size + 1))
    for start in range(size):
        table[start, start + 1 :] = np.maximum.accumulate(items[start:])
    return table
