"""A path through a sized network as a plan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.arrangement import NamedStage, PlacedStage, plan_of
from stagecut.planner.network.device_groups import name_devices
from stagecut.planner.network.sized.network import SizedNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSizes:
    """Sublot sizes of one stage and of its messages, in samples."""

    forward: int
    backward: int
    forward_message: int | None
    """To the next stage; None on the last one."""
    backward_message: int | None
    """To the previous stage; None on the first one."""


def sized_plan(network: SizedNetwork, variant: Variant, steps: Sequence[tuple[int, int, int]]) -> Plan | None:
    """The plan of a path; None if it opens more hosts of a class than there are.

    Parameters
    ----------
    steps
        Arcs from source to sink, each with the indices of its forward and backward sizes.
    """
    arcs, choose = network.arcs, network.sizing.sizes
    stages, messages, placed = [step for step in steps if arcs.option[step[0]] >= 0], steps[::2], list[PlacedStage]()
    for (transfer, *_), (arc, *_) in zip(messages, stages, strict=True):
        placement = network.host_states.options[int(arcs.option[arc])].placement
        opens = bool(arcs.opened_hosts[transfer] > 0)
        placed.append(PlacedStage(stop=int(arcs.stop[arc]), placement=placement, opens=opens))
    devices = name_devices(network.costs.cluster, placed)
    if devices is None:
        return None
    named = [
        NamedStage(
            start=int(arcs.start[arc]),
            stop=stage.stop,
            placement=stage.placement,
            devices=names,
            recompute=bool(arcs.recompute[arc]),
        )
        for (arc, *_), stage, names in zip(stages, placed, devices, strict=True)
    ]
    sizes = [
        StageSizes(
            forward=choose[forward],
            backward=choose[backward],
            forward_message=choose[messages[index + 1][1]] if index + 1 < len(stages) else None,
            backward_message=choose[messages[index][2]] if index else None,
        )
        for index, (_, forward, backward) in enumerate(stages)
    ]
    return with_sizes(plan_of(network.costs, variant, named), sizes)


def with_sizes(plan: Plan, sizes: Sequence[StageSizes]) -> Plan:
    """The plan with these sublot sizes in every pipeline."""
    pipelines = (
        Pipeline(stages=tuple(_sized(plan, *pair) for pair in zip(pipeline.stages, sizes, strict=True)))
        for pipeline in plan.pipelines
    )
    return replace(plan, pipelines=tuple(pipelines))


def _sized(plan: Plan, stage: Stage, sizes: StageSizes) -> Stage:
    return replace(
        stage,
        warmup_depth=-(-plan.num_samples // sizes.forward),
        forward_micro_batch=sizes.forward,
        backward_micro_batch=sizes.backward,
        forward_message=sizes.forward_message,
        backward_message=sizes.backward_message,
    )
