"""Times and memory of stages, as arrays over any set of layer intervals at once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stagecut.planner.core.cluster import Cluster, DeviceType
from stagecut.planner.core.layer_graphs.merged_shardings import of_layers, of_runs
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.operators.strategy import StageSharding
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import Share
from stagecut.planner.cost.collectives import AllReduce, exchange_of
from stagecut.planner.cost.layer_times import layer_times, parts
from stagecut.planner.cost.meshes import mesh_of
from stagecut.planner.cost.operator_times import layer_works
from stagecut.planner.cost.sharded_stages import ShardedStages
from stagecut.planner.cost.sharding_sums import sharding_sums
from stagecut.planner.cost.weight_updates import WeightUpdates
from stagecut.planner.sharding.layer_costs import Cost


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

    def most_depth(self, limit_bytes: float, num_microbatches: int) -> Ints:
        """The largest warm-up depth, up to the number of micro-batches, with which each fits; shape (n,).

        At least 0, whether or not the stage fits then.
        """
        room_bytes = limit_bytes - self.static_bytes - self.working_bytes
        depth = np.full(len(room_bytes), float(num_microbatches))
        np.divide(room_bytes, self.saved_bytes, out=depth, where=self.saved_bytes > 0)
        most: Ints = np.clip(depth, 0, num_microbatches).astype(np.int64)
        # Rounding may be off by one either way; what counts is `memory_bytes`.
        most += (most < num_microbatches) & (self.memory_bytes(most + 1) <= limit_bytes)
        most -= (most > 0) & (self.memory_bytes(most) > limit_bytes)
        return most


def first_fitting(
    modes: Iterable[tuple[bool, StageCosts]], warmup_depth: Ints, limit_bytes: float
) -> Iterator[tuple[bool, StageCosts, Bools]]:
    """Each recompute mode, its costs, and which stages fit in memory in it and in no mode before it.

    No further mode is taken from `modes` once all stages fit.
    """
    fits: Bools = np.array(False)
    for recompute, costs in modes:
        inside = costs.memory_bytes(warmup_depth) <= limit_bytes
        yield recompute, costs, inside & ~fits
        fits = fits | inside
        if fits.all():
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Sizes per device for one degree of tensor parallelism: prefix sums of shape (L + 1,), and maxima."""

    params: Floats
    """Number of parameters."""
    saved: Floats
    input: Floats
    largest_saved: "RangeMaxima"
    largest_working: "RangeMaxima"


class StageCostModel:
    """Stage costs of one problem, for one pipeline on its share of the cluster.

    Every sum over layers is a difference of prefix sums, every peak the maximum of a range; both are tabulated once.
    """

    def __init__(
        self, problem: Problem, share: Share, cluster: Cluster, *, alike: "StageCostModel | None" = None
    ) -> None:
        self._problem, self._share, self._cluster = problem, share, cluster
        self._model, self._begins = problem.model.unmerged
        self._times: dict[tuple[str, float, int, AllReduce | None], tuple[Floats, Floats]] = {}
        self._sizes_by_degree: dict[int, _Sizes] = {}
        self._weight_updates: dict[Placement, WeightUpdates] = {}
        if alike is not None:  # Of the same problem: neither depends on the share beyond its key.
            self._times, self._sizes_by_degree = alike._times, alike._sizes_by_degree
        self._sharded = ShardedStages(problem, share, cluster)

    def device_type(self, placement: Placement) -> DeviceType:
        """Type of the devices of a placement."""
        island = self._cluster.servers[placement.server_class].islands[placement.island]
        return self._cluster.device_type(island.device_type)

    def stages(self, placement: Placement, *, micro_batch: int, recompute: bool, start: Ints, stop: Ints) -> StageCosts:
        """Costs of the stages [start, stop) on a placement, start and stop of shape (n,).

        Each replica computes micro_batch / replicas samples of every micro-batch; with tensor parallelism
        each of its devices computes and holds an equal part of every layer that can be divided (tensor and
        sequence parallelism: Korthikanti et al., MLSys 2023).

        - F, B: sums over the layers, including an all-reduce of `tensor_parallel_bytes` for each divided
          layer; with recomputation, B grows by F.
        - static: parameters x bytes of weights, gradients and optimizer state; with ZeRO-1 the state
          is divided among the replicas of all pipelines.
        - saved, per micro-batch in flight: the sum of `saved_bytes`; with recomputation only the inputs
          of the layers (each layer is its own checkpoint: Chen et al., arXiv 1604.06174).
        - working: the largest `working_bytes`, with recomputation on top of the largest `saved_bytes`.
        - sync: all-reduce of the gradients over the replicas of all pipelines; with ZeRO-1 a
          reduce-scatter of gradients and an all-gather of weights, which take as long as an all-reduce of their mean.
        - update: weights and state read and written, gradients read, at memory bandwidth.
        """
        start, stop = self._begins[start], self._begins[stop]
        if placement.sharding is not None:
            sums = self._sharded.sums(placement, micro_batch=micro_batch, start=start, stop=stop)
            return self._of_sums(placement, sums, recompute=recompute)
        samples = micro_batch / placement.replicas
        sizes = self._sizes(placement.tensor_parallel)
        forward_s, backward_s = (prefix[stop] - prefix[start] for prefix in self._prefixes(placement, samples))
        params = sizes.params[stop] - sizes.params[start]
        saved_prefix = sizes.input if recompute else sizes.saved
        working_bytes = sizes.largest_working(start, stop)
        if recompute:
            working_bytes = working_bytes + sizes.largest_saved(start, stop)
        optimizer, updates = self._problem.job.optimizer, self._updates(placement)
        held_bytes = optimizer.weight_bytes + optimizer.gradient_bytes + optimizer.state_bytes / updates.num_holders
        return StageCosts(
            forward_s=forward_s,
            backward_s=backward_s + forward_s if recompute else backward_s,
            sync_s=updates.sync_s(params),
            update_s=updates.update_s(params),
            static_bytes=params * held_bytes,
            saved_bytes=samples * (saved_prefix[stop] - saved_prefix[start]),
            working_bytes=samples * working_bytes,
        )

    def divided(
        self, placement: Placement, sharding: StageSharding, *, micro_batch: int, recompute: bool, start: int, stop: int
    ) -> StageCosts:
        """Costs of one stage whose devices divide its layers as stated, each of shape (1,).

        - F, B: computation divided by the parts of each operator's loop, collectives of weights, conversions of tensors
          between operators and layers, one launch per layer; with recomputation, B grows by F.
        - static, saved: what each device holds of them; with recomputation the inputs of the layers.
        - working: as for any stage, and what is gathered while an operator runs.
        - sync: collectives inside the mesh, then the all-reduce over the replicas of all pipelines.
        """
        works = layer_works(self._model, self.device_type(placement), micro_batch // placement.replicas)
        sums = sharding_sums(
            works[self._begins[start] : self._begins[stop]],
            of_layers(self._problem.model, sharding, start=start, stop=stop),
            mesh_of(self._cluster, placement, sharding.mesh, self._share),
            optimizer=self._problem.job.optimizer,
            element_bytes=self._model.precision.num_bytes,
        )
        return self._of_sums(placement, sums[:, None], recompute=recompute)

    def sharding(self, placement: Placement, *, micro_batch: int, start: int, stop: int) -> StageSharding | None:
        """How the devices of a placement divide the layers [start, stop)."""
        if placement.sharding is None:
            return None
        first, last = int(self._begins[start]), int(self._begins[stop])
        of_chain = self._sharded.sharding(placement, micro_batch=micro_batch, start=first, stop=last)
        return of_runs(self._problem.model, of_chain, start=start, stop=stop)

    def _of_sums(self, placement: Placement, sums: Floats, *, recompute: bool) -> StageCosts:
        """Costs of n stages from those of their layers, shape (costs, n)."""
        updates = self._updates(placement)
        forward_s, working_bytes = sums[Cost.FORWARD_S], sums[Cost.WORKING_BYTES]
        return StageCosts(
            forward_s=forward_s,
            backward_s=sums[Cost.BACKWARD_S] + (forward_s if recompute else 0.0),
            sync_s=sums[Cost.SYNC_S] + updates.sync_s(sums[Cost.NUM_SUMMED]),
            update_s=updates.update_s(sums[Cost.NUM_UPDATED]),
            static_bytes=updates.held_bytes(sums[Cost.WEIGHT_BYTES], sums[Cost.GRADIENT_BYTES], sums[Cost.STATE_BYTES]),
            saved_bytes=sums[Cost.INPUT_BYTES if recompute else Cost.SAVED_BYTES],
            working_bytes=working_bytes + (sums[Cost.LARGEST_SAVED_BYTES] if recompute else 0.0),
        )

    def half_forward_s(self, placement: Placement, *, micro_batch: int, start: Ints, stop: Ints) -> Floats:
        """Half a forward of the stages [start, stop): max(F(b / 2), F(b) / 2) + the overhead of an action, shape (n,).

        Infinite where the replicas cannot divide half a micro-batch evenly.
        """
        if micro_batch % (2 * placement.replicas):
            return np.full(len(start), np.inf)
        start, stop = self._begins[start], self._begins[stop]
        samples = micro_batch / placement.replicas
        (half, _), (whole, _) = (self._prefixes(placement, size) for size in (samples / 2, samples))
        half_s: Floats = np.maximum(half[stop] - half[start], (whole[stop] - whole[start]) / 2)
        return half_s + self._problem.job.action_overhead_s

    def has_sync_table(self, placement: Placement) -> bool:
        """Whether the time of the gradient all-reduce is measured, and not a latency plus a sum over the layers."""
        return self._updates(placement).all_reduce.has_table

    def least_sync_s(self, placement: Placement) -> float:
        """Least total of the gradient all-reduces, however the model is cut into stages on such placements."""
        params, updates = float(self._sizes(placement.tensor_parallel).params[-1]), self._updates(placement)
        return updates.all_reduce.least_s(params * updates.message_bytes)

    def _updates(self, placement: Placement) -> WeightUpdates:
        if placement not in self._weight_updates:
            self._weight_updates[placement] = WeightUpdates(self._problem, self._share, self._cluster, placement)
        return self._weight_updates[placement]

    def _prefixes(self, placement: Placement, samples: float) -> tuple[Floats, Floats]:
        """Prefix sums of the layers' forwards and backwards, collectives included, shape (L + 1,) each."""
        device, degree = self.device_type(placement), placement.tensor_parallel
        exchange = exchange_of(self._cluster, placement, self._share) if degree > 1 else None
        key = (device.name, samples, degree, exchange)
        if key not in self._times:
            forward_s, backward_s = layer_times(self._model, device, samples, degree)
            exchange_s = np.zeros(len(forward_s)) if exchange is None else self._exchange_s(samples, exchange)
            self._times[key] = (_prefix_sums(forward_s + exchange_s), _prefix_sums(backward_s + exchange_s))
        return self._times[key]

    def _exchange_s(self, samples: float, exchange: AllReduce) -> Floats:
        """All-reduce of each layer among the devices of a replica, in one direction, shape (L,)."""
        sizes = [layer.tensor_parallel_bytes for layer in self._model.layers]
        shared = np.array([size is not None for size in sizes])
        message_bytes = samples * np.array([size or 0.0 for size in sizes])
        return np.where(shared, exchange.seconds(message_bytes), 0.0)

    def _sizes(self, degree: int) -> _Sizes:
        if degree not in self._sizes_by_degree:
            model = self._model
            divisor = parts(model, degree)
            params_bytes = np.array([layer.params_bytes + layer.shared_params_bytes for layer in model.layers])
            saved_bytes = np.array([layer.saved_bytes for layer in model.layers]) / divisor
            self._sizes_by_degree[degree] = _Sizes(
                params=_prefix_sums(params_bytes / divisor / model.precision.num_bytes),
                saved=_prefix_sums(saved_bytes),
                input=_prefix_sums(model.boundary_bytes()[:-1] / divisor),
                largest_saved=RangeMaxima(saved_bytes),
                largest_working=RangeMaxima(np.array([layer.working_bytes for layer in model.layers]) / divisor),
            )
        return self._sizes_by_degree[degree]


def _prefix_sums(values: ArrayLike) -> Floats:
    return np.concatenate(([0.0], np.cumsum(np.asarray(values, dtype=float))))


class RangeMaxima:
    """Maxima of any range of layers, from those of all ranges whose length is a power of two: O(L log L) numbers.

    The values are not negative, shape (L,).
    """

    def __init__(self, values: ArrayLike) -> None:
        row = np.append(np.asarray(values, dtype=float), 0.0)
        rows, half = [np.zeros(len(row)), row], 1
        while 2 * half < len(row):
            row = np.maximum(row, np.append(row[half:], np.zeros(half)))
            rows.append(row)
            half *= 2
        self._rows = np.array(rows)
        # Row k + 1 holds ranges of 2**k values; two of them, overlapping or not, cover any range of up to 2**(k + 1).
        self._row = np.frexp(np.arange(len(row)))[1]
        self._length = np.where(self._row > 0, 1 << np.maximum(self._row - 1, 0), 0)

    def __call__(self, start: Ints, stop: Ints) -> Floats:
        """Maximum of values[start:stop], zero where that is empty, shape (n,)."""
        row, length = self._row[stop - start], self._length[stop - start]
        maxima: Floats = np.maximum(self._rows[row, start], self._rows[row, stop - length])
        return maxima
