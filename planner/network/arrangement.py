"""The arrangement of a plan: its stages in order, each with a device group, no device named yet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import warmup_depths
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.stage_costs import first_fitting
from stagecut.planner.network.device_groups import PlacedGroup, name_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStage(PlacedGroup):
    """One stage: where its layers end and which device group it takes."""

    stop: int
    """First layer after the stage."""


Arrangement = tuple[PlacedStage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedStage:
    """One stage on named devices of the share."""

    start: int
    stop: int
    placement: Placement
    devices: tuple[str, ...]
    recompute: bool


def arrange(groups: Iterable[PlacedGroup], stops: Iterable[int]) -> Arrangement:
    """One stage on each device group; `stops` are the first layers after them."""
    return tuple(
        PlacedStage(stop=int(stop), placement=group.placement, opens=group.opens)
        for stop, group in zip(stops, groups, strict=True)
    )


def plan_of(costs: CostModel, variant: Variant, stages: Sequence[NamedStage]) -> Plan:
    """The plan whose pipelines all have these stages; the schedule decides their warm-up depths."""
    depths = warmup_depths(variant.schedule, len(stages), variant.num_microbatches, chunks=variant.chunks)
    return _plan_of(variant, [_stages_of(costs, variant, *pair) for pair in zip(stages, depths, strict=True)])


def _stages_of(costs: CostModel, variant: Variant, stage: NamedStage, depth: int) -> tuple[Stage, ...]:
    """A stage in every pipeline."""
    sharding = costs.stages.sharding(
        stage.placement, micro_batch=variant.micro_batch, start=stage.start, stop=stage.stop
    )
    return tuple(
        Stage(
            start=stage.start,
            stop=stage.stop,
            devices=tuple(names[device] for device in stage.devices),
            replicas=stage.placement.replicas,
            tensor_parallel=stage.placement.tensor_parallel,
            sharding=sharding,
            recompute=stage.recompute,
            warmup_depth=depth,
            forward_micro_batch=variant.micro_batch,
            backward_micro_batch=variant.micro_batch,
        )
        for names in costs.pipeline_names
    )


def _plan_of(variant: Variant, stages: Sequence[tuple[Stage, ...]]) -> Plan:
    return Plan(
        schedule=variant.schedule,
        micro_batch=variant.micro_batch,
        num_microbatches=variant.num_microbatches,
        pipelines=tuple(Pipeline(stages=own) for own in zip(*stages, strict=True)),
        share=variant.share,
        chunks=variant.chunks,
    )


class Assembly:
    """Makes plans of one variant; stages that several of them have in common are made once.

    Under `auto` exactly the stages that would not fit otherwise recompute. `costs` are those of the variant's share.
    """

    def __init__(self, costs: CostModel, variant: Variant) -> None:
        self._costs, self._variant = costs, variant
        self._stages = cache(partial(_fitting_stages, costs, variant))

    def plans(self, groups: Sequence[PlacedGroup], cuts: Iterable[Sequence[int]]) -> list[Plan | None]:
        """The plans on these device groups for several stops each; None if hosts, devices or memory do not suffice."""
        devices = name_devices(self._costs.cluster, groups)
        if devices is None:
            return [None for _ in cuts]
        depths = warmup_depths(self._variant.schedule, len(groups), self._variant.num_microbatches)
        placements = [group.placement for group in groups]

        def plan_of_cut(stops: Sequence[int]) -> Plan | None:
            stages = list(map(self._stages, placements, devices, depths, (0, *stops[:-1]), stops))
            complete = [stage for stage in stages if stage is not None]
            return _plan_of(self._variant, complete) if len(complete) == len(stages) else None

        return [plan_of_cut(stops) for stops in cuts]

    def plan(self, arrangement: Arrangement) -> Plan | None:
        """The plan of an arrangement; None as above."""
        (plan,) = self.plans(arrangement, [[stage.stop for stage in arrangement]])
        return plan


def _fitting_stages(
    costs: CostModel,
    variant: Variant,
    placement: Placement,
    devices: tuple[str, ...],
    depth: int,
    start: int,
    stop: int,
) -> tuple[Stage, ...] | None:
    """A stage in every pipeline; None if it does not fit in memory."""
    recompute = recompute_choice(costs, variant, placement, start, stop, depth)
    if recompute is None:
        return None
    named = NamedStage(start=start, stop=stop, placement=placement, devices=devices, recompute=recompute)
    return _stages_of(costs, variant, named, depth)


def assemble(costs: CostModel, variant: Variant, arrangement: Arrangement) -> Plan | None:
    """The plan of an arrangement, see :class:`Assembly`."""
    return Assembly(costs, variant).plan(arrangement)


RECOMPUTE_MODES = {Recompute.NEVER: (False,), Recompute.ALWAYS: (True,), Recompute.AUTO: (False, True)}
"""The modes that a job allows its stages, the preferred one first."""


def recompute_choice(
    costs: CostModel, variant: Variant, placement: Placement, start: int, stop: int, depth: int
) -> bool | None:
    """Whether the stage recomputes; None if it fits in memory in no allowed way."""
    modes = (
        (mode, costs.stage(placement, micro_batch=variant.micro_batch, recompute=mode, start=start, stop=stop))
        for mode in RECOMPUTE_MODES[costs.problem.job.recompute]
    )
    limit_bytes = costs.stages.device_type(placement).memory_bytes
    return next((mode for mode, _, fits in first_fitting(modes, np.array([depth]), limit_bytes) if fits[0]), None)


def arrangement_of(costs: CostModel, plan: Plan) -> Arrangement:
    """The arrangement of each pipeline of a plan; `costs` are those of the plan's share."""
    before, stages = None, []
    for stage in plan.stages:
        group = costs.device_group(stage)
        host = (group.placement.server_class, group.hosts)
        placement = replace(group.placement, sharding=costs.price_of(stage, plan.micro_batch))
        stages.append(PlacedStage(stop=stage.stop, placement=placement, opens=host != before))
        before = host
    return tuple(stages)
