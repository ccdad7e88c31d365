"""Device groups that interleaved plans may run on: alike, and host after host."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.interleaving import Interleaving
from stagecut.planner.core.numerics.arrays import Bools
from stagecut.planner.core.placement import DeviceGroup, Placement
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import shared_bytes
from stagecut.planner.network.arrangement import RECOMPUTE_MODES, NamedStage, plan_of
from stagecut.planner.network.device_groups import PlacedGroup, name_devices, placements_in_host, placements_on_hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """An interleaved plan without its layers: D equal device groups that take turns on D v stages."""

    variant: Variant
    placement: Placement
    """The same for every device group."""
    num_groups: int
    """D, which divides the number of micro-batches."""
    groups_per_host: int
    """Device groups that fit on a host."""

    @property
    def num_stages(self) -> int:
        """S = D v."""
        return self.num_groups * self.variant.chunks

    @property
    def order(self) -> Interleaving:
        """Order of forwards and backwards on the device groups."""
        return Interleaving(
            num_devices=self.num_groups,
            chunks=self.variant.chunks,
            num_microbatches=self.variant.num_microbatches,
        )

    @property
    def placed_groups(self) -> tuple[PlacedGroup, ...]:
        """Placement of each device group; hosts are filled one after the other."""
        return tuple(
            PlacedGroup(placement=self.placement, opens=group % self.groups_per_host == 0)
            for group in range(self.num_groups)
        )

    @property
    def groups(self) -> tuple[DeviceGroup, ...]:
        """Where the device groups run."""
        width = self.placement.num_hosts
        firsts = (group // self.groups_per_host * width for group in range(self.num_groups))
        return tuple(
            DeviceGroup(placement=self.placement, hosts=tuple(range(first, first + width))) for first in firsts
        )


def shapes_of(costs: CostModel, variant: Variant) -> Iterator[Shape]:
    """Every shape of an interleaved variant, whether any layers fit or not; `costs` are of the variant's share."""
    most = costs.problem.model.num_layers // variant.chunks
    for placement, per_host, room in _equal_groups(costs, variant.micro_batch):
        for num_groups in range(1, min(most, room, variant.num_microbatches) + 1):
            if variant.num_microbatches % num_groups == 0:
                yield Shape(variant=variant, placement=placement, num_groups=num_groups, groups_per_host=per_host)


def floor_s(costs: CostModel, shape: Shape) -> float:
    """No plan of the shape is faster: the sync rows of :mod:`stagecut.planner.simulator.interleaved_bounds` on average.

    Every device group works M micro-batches and ends with its tail; the sums over all groups are those
    of the whole model, and for all-reduces no less than :meth:`StageCostModel.least_sync_s`.
    """
    variant, num_layers = shape.variant, costs.problem.model.num_layers
    whole = costs.stage(
        shape.placement,
        micro_batch=variant.micro_batch,
        recompute=RECOMPUTE_MODES[costs.problem.job.recompute][0],
        start=0,
        stop=num_layers,
    )
    work_s = variant.num_microbatches * (whole.forward_s + whole.backward_s)
    return (float((work_s + whole.update_s)[0]) + costs.stages.least_sync_s(shape.placement)) / shape.num_groups


def interleaved_plan(costs: CostModel, shape: Shape, stops: Sequence[int]) -> Plan | None:
    """The plan that cuts the layers at the S stops; None if a device group fits in memory in no allowed way."""
    fits = {mode: _fits(costs, shape, stops, mode) for mode in RECOMPUTE_MODES[costs.problem.job.recompute]}
    modes = [next((mode for mode in fits if fits[mode][group]), None) for group in range(shape.num_groups)]
    names = name_devices(costs.cluster, shape.placed_groups)
    if names is None or None in modes:
        return None
    groups = itertools.cycle(zip(names, modes, strict=True))
    cuts = [
        NamedStage(start=int(start), stop=int(stop), placement=shape.placement, devices=devices, recompute=bool(mode))
        for (start, stop), (devices, mode) in zip(itertools.pairwise((0, *stops)), groups, strict=False)
    ]
    return plan_of(costs, shape.variant, cuts)


def _fits(costs: CostModel, shape: Shape, stops: Sequence[int], recompute: bool) -> Bools:
    """Whether the stages of each device group fit in memory in one mode."""
    start, stop = np.array([(0, *stops[:-1]), stops])
    stages = costs.stages.stages(
        shape.placement, micro_batch=shape.variant.micro_batch, recompute=recompute, start=start, stop=stop
    )
    needed = shared_bytes(shape.order, stages.static_bytes, stages.saved_bytes, stages.working_bytes)
    return needed <= costs.stages.device_type(shape.placement).memory_bytes


def _equal_groups(costs: CostModel, micro_batch: int) -> Iterator[tuple[Placement, int, int]]:
    """Every placement of a device group, with how many of it fit on a host and on the whole server class."""
    problem, cluster = costs.problem, costs.cluster
    for index, server in enumerate(cluster.servers):
        for island, devices in enumerate(server.islands):
            for placement in placements_in_host(
                problem, server_class=index, island=island, free=devices.count, micro_batch=micro_batch
            ):
                per_host = devices.count // placement.devices_per_host
                yield placement, per_host, per_host * server.count
        for num_hosts in range(2, server.count + 1):
            for placement in placements_on_hosts(
                problem, cluster, server_class=index, num_hosts=num_hosts, micro_batch=micro_batch
            ):
                yield placement, 1, server.count // num_hosts
