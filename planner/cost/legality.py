"""Whether a plan belongs to the search space (docs/search_space.md), and every way in which it does not."""

import itertools
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from planner.core.errors import BadInputError
from planner.core.job import Recompute
from planner.core.placement import Hosting, Placement
from planner.core.plan import Plan, Stage
from planner.core.schedule import warmup_depth
from planner.core.units import format_bytes
from planner.cost.cost_model import CostModel


def faults(costs: CostModel, plan: Plan) -> tuple[str, ...]:
    """Every way in which a plan leaves the search space of the problem, in words; none for a legal plan.

    Parameters
    ----------
    costs
        Of the problem that the plan is for.
    """
    return tuple(itertools.chain(_variant_faults(costs, plan), _chain_faults(costs, plan), _stages_faults(costs, plan)))


def _variant_faults(costs: CostModel, plan: Plan) -> Iterator[str]:
    """Schedule and micro-batch are among those of the job; the micro-batches make the global batch."""
    job = costs.problem.job
    if plan.schedule not in job.schedules:
        yield f"schedule {plan.schedule} is not allowed by the job: {', '.join(job.schedules)}"
    if plan.micro_batch not in job.micro_batches:
        sizes = ", ".join(map(str, job.micro_batches))
        yield f"micro-batch {plan.micro_batch} is not allowed by the job: {sizes}"
    if plan.micro_batch * plan.num_microbatches != job.global_batch:
        product = f"{plan.num_microbatches} micro-batches of {plan.micro_batch}"
        yield f"{product} do not make the global batch {job.global_batch}"


def _chain_faults(costs: CostModel, plan: Plan) -> Iterator[str]:
    """One pipeline, which covers all layers; a pipeline has no gaps by construction."""
    num_layers, last = costs.problem.model.num_layers, plan.pipelines[-1].stages[-1].stop
    if len(plan.pipelines) > 1:
        yield f"the search space has one pipeline, the plan {len(plan.pipelines)}"
    if last != num_layers:
        yield f"the last stage ends at layer {last}, the model at {num_layers}"


def _stages_faults(costs: CostModel, plan: Plan) -> Iterator[str]:
    """Faults of single stages, then of the way they share hosts."""
    hostings: list[Hosting] = []
    for index, stage in enumerate(plan.stages):
        depth = warmup_depth(plan.schedule, len(plan.stages) - index, plan.num_microbatches)
        yield from (f"stage {index}: {fault}" for fault in _shape_faults(costs, plan, stage, depth))
        try:
            hostings.append(costs.hosting(stage))
        except BadInputError as fault:
            yield f"stage {index}: {str(fault).removeprefix('stage: ')}"
            continue
        if stage.stop <= costs.problem.model.num_layers:
            memory_faults = _memory_faults(costs, plan, stage, hostings[-1].placement, depth)
            yield from (f"stage {index}: {fault}" for fault in memory_faults)
    if len(hostings) == len(plan.stages):
        yield from _run_faults(hostings)


def _shape_faults(costs: CostModel, plan: Plan, stage: Stage, depth: int) -> Iterator[str]:
    """Replicas, sizes and warm-up depth are those of the job and of the schedule."""
    if stage.tensor_parallel != 1:
        yield f"tensor parallelism of {stage.tensor_parallel} is outside the search space"
    if plan.micro_batch % stage.replicas:
        yield f"{stage.replicas} replicas do not divide the micro-batch {plan.micro_batch}"
    elif not costs.problem.job.allows_replicas(stage.replicas, plan.micro_batch):
        allowed = ", ".join(map(str, costs.problem.job.replicas or ()))
        yield f"{stage.replicas} replicas are not allowed by the job: {allowed}"
    for size in {stage.forward_micro_batch, stage.backward_micro_batch} - {plan.micro_batch}:
        yield f"a micro-batch of {size} of its own, where the plan has {plan.micro_batch}"
    if stage.warmup_depth != depth:
        yield f"warm-up depth {stage.warmup_depth}, where {plan.schedule} has {depth}"


def _memory_faults(costs: CostModel, plan: Plan, stage: Stage, placement: Placement, depth: int) -> Iterator[str]:
    """The stage fits, and recomputes as the job says: with `auto` exactly where it would not fit otherwise."""
    limit_bytes = costs.stages.device_type(placement).memory_bytes
    policy = costs.problem.job.recompute

    def memory_bytes(*, recompute: bool) -> float:
        cost = costs.stage(
            placement, micro_batch=plan.micro_batch, recompute=recompute, start=stage.start, stop=stage.stop
        )
        return float(cost.memory_bytes(np.array([depth]))[0])

    if policy is not Recompute.AUTO and stage.recompute != (policy is Recompute.ALWAYS):
        yield f"{_words(stage.recompute)}, where the job says {policy}"
    if policy is Recompute.AUTO and stage.recompute and memory_bytes(recompute=False) <= limit_bytes:
        yield "recomputes, though it fits in memory without"
    needed_bytes = memory_bytes(recompute=stage.recompute)
    if needed_bytes > limit_bytes:
        yield f"needs {format_bytes(needed_bytes)} of memory and has {format_bytes(limit_bytes)}"


def _words(recompute: bool) -> str:
    return "recomputes" if recompute else "does not recompute"


def _run_faults(hostings: Sequence[Hosting]) -> Iterator[str]:
    """Every host holds one contiguous run of stages, and inside it every island does."""
    hosts = [(hosting.placement.server_class, hosting.hosts) for hosting in hostings]
    islands = [(*host, hosting.placement.island) for host, hosting in zip(hosts, hostings, strict=True)]
    apart = list(_returns(hosts))
    yield from (f"stage {index} returns to a host that the stages before it have left" for index in apart)
    for index in _returns(islands):
        if index not in apart:
            yield f"stage {index} returns to an island that the stages before it have left"


def _returns(places: Sequence[Hashable]) -> Iterator[int]:
    """Indices where a place comes back after another one."""
    seen: set[Hashable] = set()
    for index, place in enumerate(places):
        if place in seen and place != places[index - 1]:
            yield index
        seen.add(place)
