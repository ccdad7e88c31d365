"""What single layers cost at least on the device groups of a variant: the columns of the fluid bound."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO, MEMORY_ROUNDING
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.layer_times import layer_times
from stagecut.planner.network.arrangement import RECOMPUTE_MODES
from stagecut.planner.network.device_groups import placements_in_host, placements_on_whole_hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorts:
    """The layers of a model by sort: layers of one sort cost the same on any devices."""

    first: Ints
    """Index of the first layer of each sort, shape (U,)."""
    of_layers: Ints
    """Sort of every layer, shape (L,)."""
    count: Floats
    """Number of layers of each sort, shape (U,)."""
    whole_bytes: Floats
    """Weights of a layer of each sort that devices cannot share, shape (U,)."""
    shared_bytes: Floats
    """Weights that they can share, shape (U,)."""


def sorts_of(problem: Problem) -> Sorts:
    """Sorts of layers; equal ones take equal inputs too, which recomputation keeps."""
    (model, begins), seen = problem.model.unmerged, dict[tuple[object, ...], int]()
    parts: list[object] = []
    for layer, input_bytes in zip(model.layers, model.boundary_bytes().tolist(), strict=False):
        sizes = (layer.params_bytes + layer.shared_params_bytes, layer.saved_bytes, layer.output_bytes, input_bytes)
        parts.append((sizes, layer.forward_flops, layer.working_bytes, layer.tensor_parallel_bytes, layer.times))
    numbers = [seen.setdefault(tuple(parts[slice(*ends)]), len(seen)) for ends in pairwise(begins)]
    _, first, of_layers, count = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
    params_bytes = np.array([layer.params_bytes + layer.shared_params_bytes for layer in model.layers])
    divisible = np.array([layer.tensor_parallel_bytes is not None for layer in model.layers])
    return Sorts(
        first=first,
        of_layers=of_layers,
        count=count.astype(float),
        whole_bytes=np.add.reduceat(np.where(divisible, 0.0, params_bytes), begins[:-1])[first],
        shared_bytes=np.add.reduceat(np.where(divisible, params_bytes, 0.0), begins[:-1])[first],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidCosts:
    """C choices of a device group and recompute mode for U sorts of layers."""

    kind: Ints
    """Which kind of devices each choice takes, shape (C,)."""
    num_devices: Floats
    """How many of them, shape (C,)."""
    fits: Floats
    """Zero where a stage may hold the layer, infinite where it does not even fit alone, shape (C, U)."""
    work_s: Floats
    """F + B of a layer, shape (C, U)."""
    first_share: float
    """Least part of F that the first part of a micro-batch takes: a half where the job may slice, else all."""
    trip_s: Floats
    """F + B with that part of F, shape (C, U)."""
    tail_s: Floats
    """All-reduce of gradients and optimizer step, shape (C, U); a stage takes at least the sum over its layers."""
    in_flight: int
    """Least number of micro-batches that a stage keeps."""
    held_bytes: Floats
    """On each device, with what these save, shape (C, U)."""
    forward_share: float
    """Largest F / (F + B)."""
    kind_devices: Floats
    """Number of devices of each kind, shape (K,)."""
    kind_bytes: Floats
    """Memory of a device of each kind, less what any layer needs while it runs, shape (K,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidColumns:
    """What the same choices cost whatever the schedule."""

    kind: Ints
    num_devices: Floats
    limit_bytes: Floats
    """Memory of a device of each choice, shape (C,)."""
    forward_s: Floats
    backward_s: Floats
    tail_s: Floats
    static_bytes: Floats
    saved_bytes: Floats
    """For each micro-batch kept; like all others of a layer, shape (C, U)."""
    working_bytes: Floats


def fluid_columns(costs: CostModel, micro_batch: int, sorts: Sorts) -> FluidColumns | None:
    """The choices for micro-batches of one size on the share the costs are of; None if there are none."""
    choices = [
        (kind, placement, recompute)
        for kind, placement in _placements(costs, micro_batch)
        for recompute in RECOMPUTE_MODES[costs.problem.job.recompute]
    ]
    if not choices:
        return None
    columns = [
        _column(costs, micro_batch, sorts, placement, recompute=recompute) for _, placement, recompute in choices
    ]
    forward_s, backward_s, tail_s, static_bytes, saved_bytes, working_bytes = np.stack(columns, axis=1)
    return FluidColumns(
        kind=np.array([kind for kind, _, _ in choices]),
        num_devices=np.array([float(group.replicas * group.tensor_parallel) for _, group, _ in choices]),
        limit_bytes=np.array([costs.stages.device_type(placement).memory_bytes for _, placement, _ in choices]),
        forward_s=forward_s,
        backward_s=backward_s,
        tail_s=tail_s,
        static_bytes=static_bytes,
        saved_bytes=saved_bytes,
        working_bytes=working_bytes,
    )


def fluid_costs(costs: CostModel, variant: Variant, columns: FluidColumns) -> FluidCosts:
    """The columns of one variant, whose share the costs are of."""
    kept = _in_flight(variant)
    held_bytes = columns.static_bytes + kept * columns.saved_bytes
    overfull = held_bytes + columns.working_bytes > columns.limit_bytes[:, None] * (1 + MEMORY_ROUNDING)
    work_s = columns.forward_s + columns.backward_s
    slices = costs.problem.job.may_slice(variant.schedule, variant.micro_batch)
    kind_devices = [float(server.count * island.count) for server in costs.cluster.servers for island in server.islands]
    kind_bytes = np.zeros(len(kind_devices))
    np.maximum.at(kind_bytes, columns.kind, columns.limit_bytes - columns.working_bytes.min(axis=1))
    return FluidCosts(
        kind=columns.kind,
        num_devices=columns.num_devices,
        fits=np.where(overfull, np.inf, 0.0),
        work_s=work_s,
        first_share=0.5 if slices else 1.0,
        trip_s=columns.forward_s / 2 + columns.backward_s if slices else work_s,
        tail_s=columns.tail_s,
        in_flight=kept,
        held_bytes=held_bytes,
        forward_share=float(np.max(columns.forward_s / np.where(work_s > 0, work_s, 1.0))),
        kind_devices=np.array(kind_devices),
        kind_bytes=kind_bytes,
    )


def _in_flight(variant: Variant) -> int:
    return variant.num_microbatches if variant.schedule is Schedule.GPIPE else 1


def _placements(costs: CostModel, micro_batch: int) -> Iterator[tuple[int, Placement]]:
    """Every device group that a stage may take, with the number of its kind of devices."""
    kind = 0
    for index, server in enumerate(costs.cluster.servers):
        for island, devices in enumerate(server.islands):
            inside = placements_in_host(
                costs.problem, server_class=index, island=island, free=devices.count, micro_batch=micro_batch
            )
            yield from ((kind + island, placement) for placement in inside)
        several = placements_on_whole_hosts(
            costs.problem, costs.cluster, server_class=index, most=server.count, micro_batch=micro_batch
        )
        yield from ((kind, placement) for placement in several)
        kind += len(server.islands)


def _column(costs: CostModel, micro_batch: int, sorts: Sorts, placement: Placement, *, recompute: bool) -> Floats:
    """F, B, tail, static, saved and working bytes of each sort, shape (6, U)."""
    if placement.sharding is not None:
        return _divided(costs, micro_batch, sorts, placement, recompute=recompute)
    layers = costs.stages.stages(
        placement, micro_batch=micro_batch, recompute=recompute, start=sorts.first, stop=sorts.first + 1
    )
    params = sorts.whole_bytes + sorts.shared_bytes / placement.tensor_parallel
    sync_s = costs.stages.least_sync_s(placement) * params / max(float(params @ sorts.count), ALMOST_ZERO)
    sizes = (layers.static_bytes, layers.saved_bytes, layers.working_bytes)
    return np.array((layers.forward_s, layers.backward_s, sync_s + layers.update_s, *sizes))


def _divided(costs: CostModel, micro_batch: int, sorts: Sorts, placement: Placement, *, recompute: bool) -> Floats:
    """The same where each operator is divided in its own way: no collectives, and computation divided by all."""
    model, device = costs.problem.model, costs.stages.device_type(placement)
    launch_s = np.array([device.launch_s if layer.table(device.name) is None else 0.0 for layer in model.layers])
    forward_s, backward_s = (
        ((whole_s - launch_s) / placement.tensor_parallel + launch_s)[sorts.first]
        for whole_s in layer_times(model, device, micro_batch // placement.replicas)
    )
    nothing = np.zeros(len(sorts.first))
    return np.array([forward_s, backward_s + forward_s * recompute, *[nothing] * 4])
