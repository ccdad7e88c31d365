"""Costs of stages and whole plans."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.operators.strategy import MEMORY_PRICES, StageSharding
from stagecut.planner.core.placement import DeviceGroup, Placement, device_group_of
from stagecut.planner.core.plan import Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import WHOLE, Share, cluster_share, device_names
from stagecut.planner.cost.links import half_transfer_s, link_between, route_between, sync_route
from stagecut.planner.cost.plan_costs import Halves, PlanCosts, Sublots
from stagecut.planner.cost.stage_costs import StageCostModel, StageCosts
from stagecut.planner.cost.sublot_costs import sublot_cut, sublot_seconds, whole_seconds

COLUMNS = tuple(field.name for field in fields(StageCosts))
MOST_LAYOUTS = 256
"""Layouts remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What plans on the same devices have in common."""

    apart: list[bool]
    """Whether the stages before and after each boundary are on different devices."""
    links: tuple[Link, ...]
    forward_links: tuple[tuple[str, ...], ...]
    backward_links: tuple[tuple[str, ...], ...]
    sync_links: tuple[tuple[str, ...], ...]
    limit_bytes: Floats


class CostModel:
    """Costs of the stages and plans of one problem, for pipelines on one share of the cluster."""

    def __init__(self, problem: Problem, share: Share = WHOLE, *, alike: StageCostModel | None = None) -> None:
        self.problem, self.share = problem, share
        self.cluster = cluster_share(problem.cluster, share)
        self.stages = StageCostModel(problem, share, self.cluster, alike=alike)
        self._boundary_bytes = problem.model.boundary_bytes()
        names = device_names(problem.cluster, share, 0)
        self._devices = {names[device.name]: device for device in self.cluster.devices()}
        self._stage_cache: dict[tuple[object, ...], StageCosts] = {}
        self._groups: dict[tuple[tuple[str, ...], int], DeviceGroup] = {}
        self._layout = lru_cache(maxsize=MOST_LAYOUTS)(self._layout_of)
        self._half_cache: dict[tuple[object, ...], float] = {}
        self._others: dict[Share, CostModel] = {share: self}

    @cached_property
    def pipeline_names(self) -> tuple[dict[str, str], ...]:
        """For every pipeline, the names of its devices in the cluster by their names in its share."""
        cluster, share = self.problem.cluster, self.share
        return tuple(device_names(cluster, share, pipeline) for pipeline in range(share.num_pipelines))

    @property
    def max_stages(self) -> int:
        """Stages that one pipeline can have: each needs a layer and a device."""
        return min(self.problem.model.num_layers, self.cluster.num_devices)

    def of(self, share: Share) -> "CostModel":
        """The costs of the same problem for another share, computed once."""
        if share not in self._others:
            self._others[share] = CostModel(self.problem, share, alike=self.stages)
            self._others[share]._others = self._others
        return self._others[share]

    def device_group(self, stage: Stage) -> DeviceGroup:
        """Placement and hosts of a stage of the first pipeline of a plan, within its share.

        Raises a BadInputError if a device is unknown or in another pipeline, or the devices form no placement.
        """
        key = (stage.devices, stage.tensor_parallel)
        if key not in self._groups:
            self._groups[key] = device_group_of(
                self.cluster, stage.devices, self._devices, tensor_parallel=stage.tensor_parallel
            )
        return self._groups[key]

    def stage(self, placement: Placement, *, micro_batch: int, recompute: bool, start: int, stop: int) -> StageCosts:
        """Costs of one stage, each of shape (1,); computed once."""
        key = (placement, micro_batch, recompute, start, stop)
        if key not in self._stage_cache:
            self._stage_cache[key] = self.stages.stages(
                placement, micro_batch=micro_batch, recompute=recompute, start=np.array([start]), stop=np.array([stop])
            )
        return self._stage_cache[key]

    def plan(self, plan: Plan) -> PlanCosts:
        """Costs of the first pipeline of a plan; all others repeat it. Raises the errors of :meth:`device_group`."""
        if plan.share != self.share:
            return self.of(plan.share).plan(plan)
        stages = plan.stages
        groups = [self.device_group(stage) for stage in stages]
        costs = [self._stage_of(stage, group, plan.micro_batch) for stage, group in zip(stages, groups, strict=True)]
        if plan.is_unequal:
            return self._unequal(plan, groups, costs)
        return self._plan_costs(plan, groups, costs)

    def price_of(self, stage: Stage, micro_batch: int) -> int | None:
        """Index of the memory price at which the sharding of a stage is the cheapest; the first one if at none."""
        if stage.sharding is None:
            return None
        placement = self.device_group(stage).placement
        interval = {"micro_batch": micro_batch, "start": stage.start, "stop": stage.stop}
        for price in range(len(MEMORY_PRICES)):
            if self.stages.sharding(replace(placement, sharding=price), **interval) == stage.sharding:
                return price
        return 0

    def _stage_of(self, stage: Stage, group: DeviceGroup, samples: int) -> StageCosts:
        if stage.sharding is not None:
            return self._divided(stage, stage.sharding, group.placement, samples)
        return self.stage(
            group.placement, micro_batch=samples, recompute=stage.recompute, start=stage.start, stop=stage.stop
        )

    def _divided(self, stage: Stage, sharding: StageSharding, placement: Placement, samples: int) -> StageCosts:
        key = (placement, samples, stage.recompute, stage.start, stage.stop, sharding)
        if key not in self._stage_cache:
            self._stage_cache[key] = self.stages.divided(
                placement,
                sharding,
                micro_batch=samples,
                recompute=stage.recompute,
                start=stage.start,
                stop=stage.stop,
            )
        return self._stage_cache[key]

    def _unequal(self, plan: Plan, groups: Sequence[DeviceGroup], costs: Sequence[StageCosts]) -> PlanCosts:
        """Costs of a plan whose processes have sublot sizes of their own."""
        largest = [max(stage.forward_micro_batch, stage.backward_micro_batch) for stage in plan.stages]
        working = [self._stage_of(*each).working_bytes[0] for each in zip(plan.stages, groups, largest, strict=True)]
        cut = sublot_cut(plan)
        links = [link_between(self.cluster, *pair) for pair in pairwise(groups)]
        starts = [stage.start for stage in plan.stages[1:]]
        seconds = sublot_seconds(
            cut,
            lambda stage, samples: self._stage_of(plan.stages[stage], groups[stage], samples),
            lambda boundary, samples: float(
                links[boundary].transfer_s(samples * self._boundary_bytes[starts[boundary]])
            ),
        )
        return replace(
            self._plan_costs(plan, groups, costs),
            **whole_seconds(seconds, len(groups)),
            warmup_depth=-(-np.array(cut.in_flight) // plan.micro_batch),
            working_bytes=np.array(working),
            sublots=Sublots(cut=cut, seconds=seconds),
        )

    def _plan_costs(self, plan: Plan, groups: Sequence[DeviceGroup], costs: Sequence[StageCosts]) -> PlanCosts:
        layout = self._layout(tuple((stage.devices, stage.tensor_parallel) for stage in plan.stages))
        message_bytes = plan.micro_batch * self._boundary_bytes[[stage.start for stage in plan.stages[1:]]]
        whole_s = [link.transfer_s(size) for link, size in zip(layout.links, message_bytes.tolist(), strict=True)]
        columns = np.array([[getattr(cost, name)[0] for cost in costs] for name in COLUMNS])
        return PlanCosts(
            variant=plan.variant,
            warmup_depth=np.array([stage.warmup_depth for stage in plan.stages]),
            transfer_s=np.where(layout.apart, whole_s, 0.0),
            forward_links=layout.forward_links,
            backward_links=layout.backward_links,
            sync_links=layout.sync_links,
            limit_bytes=layout.limit_bytes,
            halves=self._halves(plan, groups, layout.links, message_bytes),
            sublots=None,
            **dict(zip(COLUMNS, columns, strict=True)),
        )

    def _layout_of(self, stages: tuple[tuple[tuple[str, ...], int], ...]) -> _Layout:
        """Links and limits of the stages on these devices, each with its degree of tensor parallelism."""
        groups = [self._groups[stage] for stage in stages]
        # Consecutive chunks of a single device group are on the same devices: nothing is sent.
        apart = [sender != receiver for (sender, _), (receiver, _) in pairwise(stages)]
        ends = list(zip(groups, groups[1:], apart, strict=False))
        return _Layout(
            apart=apart,
            links=tuple(link_between(self.cluster, sender, receiver) for sender, receiver, _ in ends),
            forward_links=tuple(route_between(self.cluster, a, b) if sends else () for a, b, sends in ends),
            backward_links=tuple(route_between(self.cluster, b, a) if sends else () for a, b, sends in ends),
            sync_links=tuple(sync_route(self.cluster, group, self.share) for group in groups),
            limit_bytes=np.array([self.stages.device_type(group.placement).memory_bytes for group in groups]),
        )

    def _halves(
        self, plan: Plan, groups: Sequence[DeviceGroup], links: Sequence[Link], message_bytes: Floats
    ) -> Halves | None:
        """Half micro-batches of a plan that has them, or may have them by its job."""
        if plan.is_unequal or not (plan.num_sliced or self.problem.job.may_slice(plan.schedule, plan.micro_batch)):
            return None
        half_s = [half_transfer_s(link, message_bytes[[index]])[0] for index, link in enumerate(links)]
        return Halves(
            forward_s=np.array([self._half_forward_s(*pair) for pair in zip(plan.stages, groups, strict=True)]),
            transfer_s=np.array(half_s),
            num_halved=np.array(plan.num_halved),
        )

    def _half_forward_s(self, stage: Stage, group: DeviceGroup) -> float:
        key = (group.placement, stage.forward_micro_batch, stage.start, stage.stop)
        if key not in self._half_cache:
            (self._half_cache[key],) = self.stages.half_forward_s(
                group.placement,
                micro_batch=stage.forward_micro_batch,
                start=np.array([stage.start]),
                stop=np.array([stage.stop]),
            )
        return self._half_cache[key]
