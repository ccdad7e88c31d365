"""A plan without names: the stages of a pipeline in order, each with its placement."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import warmup_depth, warmup_depths
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.seating import Seat, seat_stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One stage: where its layers end and where it sits."""

    stop: int
    """First layer after the stage."""
    placement: Placement
    opens: bool
    """Whether it starts on hosts of its own; False: on the host of the stage before."""


Layout = tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One stage of a plan to be: its layers, its devices within the share, and whether it recomputes."""

    start: int
    stop: int
    placement: Placement
    devices: tuple[str, ...]
    recompute: bool


def layout_on(seats: Iterable[Seat], stops: Iterable[int]) -> Layout:
    """One stage on each seat; `stops` are the first layers after them."""
    return tuple(
        Block(stop=int(stop), placement=seat.placement, opens=seat.opens)
        for stop, seat in zip(stops, seats, strict=True)
    )


def plan_of(costs: CostModel, variant: Variant, cuts: Sequence[Cut]) -> Plan:
    """The plan whose pipelines all have these stages; the schedule decides their warm-up depths."""
    depths = warmup_depths(variant.schedule, len(cuts), variant.num_microbatches, chunks=variant.chunks)
    return Plan(
        schedule=variant.schedule,
        micro_batch=variant.micro_batch,
        num_microbatches=variant.num_microbatches,
        pipelines=tuple(
            Pipeline(stages=tuple(_stages(variant, cuts, depths, names))) for names in costs.pipeline_names
        ),
        share=variant.share,
        chunks=variant.chunks,
    )


def _stages(variant: Variant, cuts: Sequence[Cut], depths: Sequence[int], names: Mapping[str, str]) -> Iterator[Stage]:
    """Stages with the devices of one pipeline."""
    for cut, depth in zip(cuts, depths, strict=True):
        yield Stage(
            start=cut.start,
            stop=cut.stop,
            devices=tuple(names[device] for device in cut.devices),
            replicas=cut.placement.replicas,
            tensor_parallel=cut.placement.tensor_parallel,
            recompute=cut.recompute,
            warmup_depth=depth,
            forward_micro_batch=variant.micro_batch,
            backward_micro_batch=variant.micro_batch,
        )


def assemble(costs: CostModel, variant: Variant, layout: Layout) -> Plan | None:
    """The plan of a layout; None if hosts, devices or memory do not suffice.

    Recomputation follows the job: with `auto`, exactly the stages that would not fit otherwise.

    Parameters
    ----------
    costs
        Of the variant's share.
    """
    devices = seat_stages(costs.cluster, [Seat(placement=block.placement, opens=block.opens) for block in layout])
    if devices is None:
        return None
    cuts, start = [], 0
    for index, (block, names) in enumerate(zip(layout, devices, strict=True)):
        depth = warmup_depth(variant.schedule, len(layout) - index, variant.num_microbatches)
        recompute = recompute_choice(costs, variant, block.placement, start, block.stop, depth)
        if recompute is None:
            return None
        cuts.append(Cut(start=start, stop=block.stop, placement=block.placement, devices=names, recompute=recompute))
        start = block.stop
    return plan_of(costs, variant, cuts)


RECOMPUTE_MODES = {Recompute.NEVER: (False,), Recompute.ALWAYS: (True,), Recompute.AUTO: (False, True)}
"""What a stage may do, the preferred first."""


def recompute_choice(
    costs: CostModel, variant: Variant, placement: Placement, start: int, stop: int, depth: int
) -> bool | None:
    """Whether the stage recomputes; None if it fits in memory in no allowed way."""
    limit_bytes = costs.stages.device_type(placement).memory_bytes
    for recompute in RECOMPUTE_MODES[costs.problem.job.recompute]:
        stage = costs.stage(placement, micro_batch=variant.micro_batch, recompute=recompute, start=start, stop=stop)
        if stage.memory_bytes(np.array([depth]))[0] <= limit_bytes:
            return recompute
    return None


def layout_of(costs: CostModel, plan: Plan) -> Layout:
    """The layout of each pipeline of a plan.

    Parameters
    ----------
    costs
        Of the plan's share.
    """
    hostings = [costs.hosting(stage) for stage in plan.stages]
    blocks = []
    for index, (stage, hosting) in enumerate(zip(plan.stages, hostings, strict=True)):
        before = hostings[index - 1] if index else None
        stays = (
            before is not None
            and before.hosts == hosting.hosts
            and before.placement.server_class == hosting.placement.server_class
        )
        blocks.append(Block(stop=stage.stop, placement=hosting.placement, opens=not stays))
    return tuple(blocks)
