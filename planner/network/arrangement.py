"""The arrangement of a plan: its stages in order, each with a device group, no device named yet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import warmup_depth, warmup_depths
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
    return Plan(
        schedule=variant.schedule,
        micro_batch=variant.micro_batch,
        num_microbatches=variant.num_microbatches,
        pipelines=tuple(
            Pipeline(
                stages=tuple(
                    Stage(
                        start=stage.start,
                        stop=stage.stop,
                        devices=tuple(names[device] for device in stage.devices),
                        replicas=stage.placement.replicas,
                        tensor_parallel=stage.placement.tensor_parallel,
                        sharding=costs.stages.sharding(
                            stage.placement, micro_batch=variant.micro_batch, start=stage.start, stop=stage.stop
                        ),
                        recompute=stage.recompute,
                        warmup_depth=depth,
                        forward_micro_batch=variant.micro_batch,
                        backward_micro_batch=variant.micro_batch,
                    )
                    for stage, depth in zip(stages, depths, strict=True)
                )
            )
            for names in costs.pipeline_names
        ),
        share=variant.share,
        chunks=variant.chunks,
    )


def assemble(costs: CostModel, variant: Variant, arrangement: Arrangement) -> Plan | None:
    """The plan of an arrangement; None if hosts, devices or memory do not suffice.

    Under `auto` exactly the stages that would not fit otherwise recompute. `costs` are those of the variant's share.
    """
    devices = name_devices(costs.cluster, arrangement)
    if devices is None:
        return None
    stages, start = [], 0
    for index, (stage, names) in enumerate(zip(arrangement, devices, strict=True)):
        depth = warmup_depth(variant.schedule, len(arrangement) - index, variant.num_microbatches)
        recompute = recompute_choice(costs, variant, stage.placement, start, stage.stop, depth)
        if recompute is None:
            return None
        stages.append(
            NamedStage(start=start, stop=stage.stop, placement=stage.placement, devices=names, recompute=recompute)
        )
        start = stage.stop
    return plan_of(costs, variant, stages)


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
