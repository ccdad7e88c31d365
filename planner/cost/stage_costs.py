"""Times and memory of stages, as arrays over any set of layer intervals at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.cluster import Cluster, DeviceType
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import Share
from stagecut.planner.cost.collectives import AllReduce, exchange_of, gradient_sync_of
from stagecut.planner.cost.layer_times import layer_times, parts


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prefixes:
    """Prefix sums over the layers for one device type, number of samples and degree, each of shape (L + 1,)."""

    forward_s: Floats
    backward_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bytes:
    """Bytes per device for one degree of tensor parallelism: prefix sums (L + 1,), maxima."""

    params: Floats
    """A number of parameters, not of bytes."""
    saved: Floats
    input: Floats
    largest_saved: "RangeMaxima"
    largest_working: "RangeMaxima"


class StageCostModel:
    """Stage costs of one problem, for one pipeline on its share of the cluster.

    Every additive quantity is a difference of prefix sums over the layers, every peak is the
    maximum over a run of them; both are computed once.
    """

    def __init__(self, problem: Problem, share: Share, cluster: Cluster) -> None:
        self._problem, self._share, self._cluster = problem, share, cluster
        self._times: dict[tuple[str, float, int, AllReduce | None], _Prefixes] = {}
        self._bytes: dict[int, _Bytes] = {}

    def device_type(self, placement: Placement) -> DeviceType:
        """The kind of device a placement uses."""
        island = self._cluster.servers[placement.server_class].islands[placement.island]
        return self._cluster.device_type(island.device_type)

    def stages(self, placement: Placement, *, micro_batch: int, recompute: bool, start: Ints, stop: Ints) -> StageCosts:
        """Costs of the stages [start, stop) on a placement, start and stop of shape (n,).

        Each replica computes micro_batch / replicas samples of every micro-batch; the devices that
        share a replica each compute and hold an equal part of every layer that can be shared
        (tensor and sequence parallelism: Korthikanti et al., MLSys 2023).

        - F, B: sums over the layers, an all-reduce of `tensor_parallel_bytes` of each shared layer
          included; with recompute, B grows by F.
        - static: parameters x bytes of weights, gradients and optimizer state; with ZeRO-1 each
          replica, of all pipelines, holds its part of the state only.
        - saved, per micro-batch in flight: the sum of `saved_bytes`; with recompute only the inputs
          of the layers (each layer is its own checkpoint: Chen et al., arXiv 1604.06174).
        - working: the largest `working_bytes`, with recompute on top of the largest `saved_bytes`.
        - sync: all-reduce of the gradients over the replicas in all pipelines; with ZeRO-1 a
          reduce-scatter of gradients and an all-gather of weights, together as long as one of their mean.
        - update: weights and state read and written, gradients read, at memory bandwidth.
        """
        samples = micro_batch / placement.replicas
        device = self.device_type(placement)
        times, sizes = self._prefixes(placement, samples), self._sizes(placement.tensor_parallel)
        forward_s = times.forward_s[stop] - times.forward_s[start]
        backward_s = times.backward_s[stop] - times.backward_s[start]
        params = sizes.params[stop] - sizes.params[start]
        saved_prefix = sizes.input if recompute else sizes.saved
        working_bytes = sizes.largest_working(start, stop)
        if recompute:
            working_bytes = working_bytes + sizes.largest_saved(start, stop)
        optimizer, holders = self._problem.job.optimizer, self._state_holders(placement)
        touched_bytes = 2 * (optimizer.weight_bytes + optimizer.state_bytes) + optimizer.gradient_bytes
        held_bytes = optimizer.weight_bytes + optimizer.gradient_bytes + optimizer.state_bytes / holders
        return StageCosts(
            forward_s=forward_s,
            backward_s=backward_s + forward_s if recompute else backward_s,
            sync_s=self._sync_s(placement, params),
            update_s=params * touched_bytes / holders / device.memory_bandwidth_bytes_per_s,
            static_bytes=params * held_bytes,
            saved_bytes=samples * (saved_prefix[stop] - saved_prefix[start]),
            working_bytes=samples * working_bytes,
        )

    def half_forward_s(self, placement: Placement, *, micro_batch: int, start: Ints, stop: Ints) -> Floats:
        """Half a forward of the stages [start, stop): max(F(b / 2), F(b) / 2) + what one more action costs, shape (n,).

        Infinite where the replicas cannot share half a micro-batch evenly.
        """
        if micro_batch % (2 * placement.replicas):
            return np.full(len(start), np.inf)
        samples = micro_batch / placement.replicas
        half, whole = (self._prefixes(placement, size).forward_s for size in (samples / 2, samples))
        half_s: Floats = np.maximum(half[stop] - half[start], (whole[stop] - whole[start]) / 2)
        return half_s + self._problem.job.action_overhead_s

    def has_sync_table(self, placement: Placement) -> bool:
        """Whether the gradient all-reduce of stages is other than a latency and a sum over their layers."""
        return gradient_sync_of(self._cluster, placement, self._share).has_table

    def least_sync_s(self, placement: Placement) -> float:
        """However the model is cut into stages on such placements, their gradient all-reduces take no less in all."""
        params = float(self._sizes(placement.tensor_parallel).params[-1])
        return gradient_sync_of(self._cluster, placement, self._share).least_s(params * self._message_bytes)

    def _state_holders(self, placement: Placement) -> int:
        return placement.replicas * self._share.num_pipelines if self._problem.job.zero1 else 1

    def _sync_s(self, placement: Placement, params: Floats) -> Floats:
        return gradient_sync_of(self._cluster, placement, self._share).seconds(params * self._message_bytes)

    @property
    def _message_bytes(self) -> float:
        """All-reduced for every parameter."""
        optimizer = self._problem.job.optimizer
        if self._problem.job.zero1:
            return (optimizer.gradient_bytes + optimizer.weight_bytes) / 2
        return optimizer.gradient_bytes

    def _prefixes(self, placement: Placement, samples: float) -> _Prefixes:
        device, degree = self.device_type(placement), placement.tensor_parallel
        exchange = exchange_of(self._cluster, placement, self._share) if degree > 1 else None
        key = (device.name, samples, degree, exchange)
        if key not in self._times:
            forward_s, backward_s = layer_times(self._problem.model, device, samples, degree)
            exchange_s = np.zeros(len(forward_s)) if exchange is None else self._exchange_s(samples, exchange)
            self._times[key] = _Prefixes(
                forward_s=_prefix_sums(forward_s + exchange_s), backward_s=_prefix_sums(backward_s + exchange_s)
            )
        return self._times[key]

    def _exchange_s(self, samples: float, exchange: AllReduce) -> Floats:
        """All-reduce of each layer among the devices that share it, in one direction, shape (L,)."""
        sizes = [layer.tensor_parallel_bytes for layer in self._problem.model.layers]
        shared = np.array([size is not None for size in sizes])
        message_bytes = samples * np.array([size or 0.0 for size in sizes])
        return np.where(shared, exchange.seconds(message_bytes), 0.0)

    def _sizes(self, degree: int) -> _Bytes:
        if degree not in self._bytes:
            model = self._problem.model
            divisor = parts(model, degree)
            params_bytes = np.array([layer.params_bytes + layer.shared_params_bytes for layer in model.layers])
            saved_bytes = np.array([layer.saved_bytes for layer in model.layers]) / divisor
            self._bytes[degree] = _Bytes(
                params=_prefix_sums(params_bytes / divisor / model.precision.num_bytes),
                saved=_prefix_sums(saved_bytes),
                input=_prefix_sums(model.boundary_bytes()[:-1] / divisor),
                largest_saved=RangeMaxima(saved_bytes),
                largest_working=RangeMaxima(np.array([layer.working_bytes for layer in model.layers]) / divisor),
            )
        return self._bytes[degree]


def _prefix_sums(values: ArrayLike) -> Floats:
    return np.concatenate(([0.0], np.cumsum(np.asarray(values, dtype=float))))


class RangeMaxima:
    """Largest value of any run of layers, from those of all runs whose length is a power of two: O(L log L) numbers.

    Parameters
    ----------
    values
        Not negative, shape (L,).
    """

    def __init__(self, values: ArrayLike) -> None:
        row = np.append(np.asarray(values, dtype=float), 0.0)
        rows, half = [np.zeros(len(row)), row], 1
        while 2 * half < len(row):
            row = np.maximum(row, np.append(row[half:], np.zeros(half)))
            rows.append(row)
            half *= 2
        self._rows = np.array(rows)
        # Row k + 1 holds runs of 2**k values; two of them, perhaps overlapping, cover any run of fewer than twice that.
        self._row = np.frexp(np.arange(len(row)))[1]
        self._length = np.where(self._row > 0, 1 << np.maximum(self._row - 1, 0), 0)

    def __call__(self, start: Ints, stop: Ints) -> Floats:
        """Maximum of values[start:stop], zero where that is empty, shape (n,)."""
        row, length = self._row[stop - start], self._length[stop - start]
        maxima: Floats = np.maximum(self._rows[row, start], self._rows[row, stop - length])
        return maxima
