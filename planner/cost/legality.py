"""Whether a plan belongs to the search space (docs/search_space.md), and if not, why."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

from stagecut.planner.core.job import AUTO, Recompute
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.placement import DeviceGroup
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.core.share import is_share_of
from stagecut.planner.core.units import format_bytes
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.framework_legality import framework_faults
from stagecut.planner.cost.sharding_legality import sharding_faults
from stagecut.planner.cost.sublot_legality import least_sizes, sublot_faults


def faults(costs: CostModel, plan: Plan) -> tuple[str, ...]:
    """Every way in which a plan leaves the search space of the problem, in words; none for a legal plan.

    The costs are those of the plan's problem, for any share.
    """
    found = [*_variant_faults(costs, plan), *framework_faults(costs.problem, plan)]
    num_layers, last = costs.problem.model.num_layers, plan.stages[-1].stop
    if last != num_layers:  # a plan has no gaps by construction
        found.append(f"the last stage ends at layer {last}, the model at {num_layers}")
    if is_share_of(costs.problem.cluster, plan.share):
        own = costs.of(plan.share)
        found += [*_copy_faults(own, plan), *_stages_faults(own, plan)]
    return tuple(found)


def _variant_faults(costs: CostModel, plan: Plan) -> Iterator[str]:
    """The job allows what holds for the whole plan, and the micro-batches make the global batch."""
    job, interleaved = costs.problem.job, plan.schedule is Schedule.INTERLEAVED
    pipelines = "1 pipeline is" if len(plan.pipelines) == 1 else f"{len(plan.pipelines)} pipelines are"
    if not interleaved and plan.chunks > 1:
        yield f"{plan.chunks} chunks per device group, where {plan.schedule} has 1"
    choices: tuple[tuple[str, Hashable, Sequence[Hashable] | None], ...] = (
        (f"schedule {plan.schedule} is", plan.schedule, job.schedules),
        (f"{plan.chunks} chunks per device group are", plan.chunks, job.chunks if interleaved else None),
        (f"micro-batch {plan.micro_batch} is", plan.micro_batch, None if plan.is_unequal else job.micro_batches),
        (pipelines, plan.share.num_pipelines, job.pipelines),
    )
    for words, choice, allowed in choices:
        if allowed is not None and choice not in allowed:
            yield f"{words} not allowed by the job: {_listed(allowed)}"
    num_sliced = 0 if plan.is_unequal else job.first_num_sliced(plan.schedule, plan.micro_batch, plan.num_microbatches)
    # Under `auto` the simulator has to say which number pays: see `planner.simulator.slicing`.
    is_open = job.slice == AUTO and not plan.is_unequal and job.may_slice(plan.schedule, plan.micro_batch)
    if plan.num_sliced != num_sliced and not is_open:
        yield f"{plan.num_sliced} halved micro-batches, where the job asks for {num_sliced}"
    if not is_share_of(costs.problem.cluster, plan.share):
        yield f"{pipelines} not given equal shares of the cluster by host splits of {plan.share.host_splits}"
    if len(plan.pipelines) * plan.micro_batch * plan.num_microbatches != job.global_batch:
        product = f"{plan.num_microbatches} micro-batches of {plan.micro_batch}"
        each = f" in each of {len(plan.pipelines)} pipelines" if len(plan.pipelines) > 1 else ""
        yield f"{product}{each} do not make the global batch {job.global_batch}"


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def _copy_faults(costs: CostModel, plan: Plan) -> Iterator[str]:
    """Every other pipeline repeats the first one, on the corresponding devices of its own share."""
    first, *others = costs.pipeline_names
    for number, names in enumerate(others, start=1):
        renamed = {first[own]: names[own] for own in first}
        pipeline = plan.pipelines[number]
        if pipeline.num_stages != len(plan.stages):
            yield f"pipeline {number} has {pipeline.num_stages} stages, the first one {len(plan.stages)}"
            continue
        yield from (f"pipeline {number}, {fault}" for fault in _stage_copy_faults(plan, pipeline, renamed))


def _stage_copy_faults(plan: Plan, pipeline: Pipeline, renamed: dict[str, str]) -> Iterator[str]:
    for index, (stage, model) in enumerate(zip(pipeline.stages, plan.stages, strict=True)):
        devices = tuple(renamed.get(device, device) for device in model.devices)
        if stage.devices != devices:
            yield f"stage {index}: on {', '.join(stage.devices)}, where its share has {', '.join(devices)} for it"
        if replace(stage, devices=model.devices) != model:
            yield f"stage {index}: differs from that of the first pipeline in more than its devices"


def _stages_faults(costs: CostModel, plan: Plan) -> Iterator[str]:
    """The first pipeline: its single stages, how they share hosts, and their memory."""
    depths = _scheduled_depths(plan)
    if depths is None:
        yield f"{plan.num_microbatches} micro-batches are not a multiple of the {plan.num_groups} device groups"
    if plan.is_unequal:
        yield from sublot_faults(costs.problem.job, plan)
    groups: list[DeviceGroup] = []
    divided = [*_sharding_faults(costs.problem, plan)]
    yield from divided
    for index, stage in enumerate(plan.stages):
        depth = stage.warmup_depth if depths is None else depths[index]
        yield from (f"stage {index}: {fault}" for fault in _shape_faults(costs, plan, stage, depth))
        try:
            groups.append(costs.device_group(stage))
        except BadInputError as fault:
            yield f"stage {index}: {str(fault).removeprefix('stage: ')}"
    if len(groups) < len(plan.stages):
        return
    yield from _run_faults(groups[: plan.num_groups])
    if plan.schedule is Schedule.INTERLEAVED:
        yield from _filling_faults(costs, groups[: plan.num_groups])
    if depths is not None and not divided and plan.stages[-1].stop <= costs.problem.model.num_layers:
        yield from _memory_faults(costs, plan)


def _sharding_faults(problem: Problem, plan: Plan) -> Iterator[str]:
    """Operators are divided as they and the job allow."""
    for index, stage in enumerate(plan.stages):
        yield from (f"stage {index}: {fault}" for fault in sharding_faults(problem, stage, plan.micro_batch))


def _scheduled_depths(plan: Plan) -> tuple[int, ...] | None:
    """Warm-up depths of the schedule; None if it cannot run these micro-batches."""
    if plan.schedule is Schedule.INTERLEAVED and plan.num_microbatches % plan.num_groups:
        return None
    if plan.is_unequal and plan.schedule is Schedule.GPIPE:
        return tuple(-(-plan.num_samples // stage.forward_micro_batch) for stage in plan.stages)
    return warmup_depths(plan.schedule, len(plan.stages), plan.num_microbatches, chunks=plan.chunks)


def _shape_faults(costs: CostModel, plan: Plan, stage: Stage, depth: int) -> Iterator[str]:
    """Replicas, how devices share them, micro-batch sizes and warm-up depth follow the job and the schedule."""
    degrees = costs.problem.tensor_parallel_degrees
    if stage.sharding is None and stage.tensor_parallel not in degrees:
        yield f"tensor parallelism of {stage.tensor_parallel} is outside the search space: {_listed(degrees)}"
    if plan.micro_batch % stage.replicas:
        yield f"{stage.replicas} replicas do not divide the micro-batch {plan.micro_batch}"
    elif not costs.problem.job.allows_replicas(stage.replicas, plan.micro_batch):
        yield f"{stage.replicas} replicas are not allowed by the job: {_listed(costs.problem.job.replicas or ())}"
    if stage.warmup_depth != depth:
        yield f"warm-up depth {stage.warmup_depth}, where {plan.schedule} has {depth}"


def _memory_faults(costs: CostModel, plan: Plan) -> Iterator[str]:
    """Every stage fits, and recomputes as the job says; with `auto`, where it would not fit otherwise."""
    rules = costs.problem.rules
    must_differ = rules is None or not rules.is_alike
    policy, limits_bytes = costs.problem.job.recompute, costs.plan(plan).limit_bytes
    needs_bytes = _memory_bytes(costs, plan, lambda stage: stage.recompute)
    least = least_sizes(costs.problem.job, plan) if plan.is_unequal else plan
    plain_bytes = _memory_bytes(costs, least, lambda _: False)
    for index, stage in enumerate(plan.stages):
        first = index % plan.num_groups
        if stage.recompute != plan.stages[first].recompute:
            yield f"stage {index}: {_words(stage.recompute)}, unlike stage {first} on the same devices"
        if policy is not Recompute.AUTO and stage.recompute != (policy is Recompute.ALWAYS):
            yield f"stage {index}: {_words(stage.recompute)}, where the job says {policy}"
        if policy is Recompute.AUTO and must_differ and stage.recompute and plain_bytes[index] <= limits_bytes[index]:
            yield f"stage {index}: recomputes although it fits in memory without"
        if needs_bytes[index] > limits_bytes[index]:
            sizes = f"{format_bytes(needs_bytes[index])} of memory and has {format_bytes(limits_bytes[index])}"
            yield f"stage {index}: needs {sizes}"


def _memory_bytes(costs: CostModel, plan: Plan, recomputes: Callable[[Stage], bool]) -> Floats:
    """High-water mark of the devices of every stage under the schedule's warm-up depths, shape (S,)."""
    stages = tuple(
        replace(stage, warmup_depth=depth, recompute=recomputes(stage))
        for stage, depth in zip(plan.stages, _scheduled_depths(plan) or (), strict=True)
    )
    return costs.plan(replace(plan, pipelines=(Pipeline(stages=stages), *plan.pipelines[1:]))).memory_bytes


def _words(recompute: bool) -> str:
    return "recomputes" if recompute else "does not recompute"


def _run_faults(groups: Sequence[DeviceGroup]) -> Iterator[str]:
    """Every host holds one contiguous run of device groups, and inside it every island does."""
    hosts = [(group.placement.server_class, group.hosts) for group in groups]
    islands = [(*host, group.placement.island) for host, group in zip(hosts, groups, strict=True)]
    apart = list(_returns(hosts))
    yield from (f"stage {index} returns to a host that the stages before it have left" for index in apart)
    for index in _returns(islands):
        if index not in apart:
            yield f"stage {index} returns to an island that the stages before it have left"


def _returns(values: Sequence[Hashable]) -> Iterator[int]:
    """Indices where a value comes back after another one."""
    for index, value in enumerate(values):
        if value in values[:index] and value != values[index - 1]:
            yield index


def _filling_faults(costs: CostModel, groups: Sequence[DeviceGroup]) -> Iterator[str]:
    """Interleaved device groups are alike, and each host is full before the next one is used."""
    placement = groups[0].placement
    unlike = [index for index, group in enumerate(groups) if group.placement != placement]
    if unlike:
        yield f"stage {unlike[0]}: its device group differs from that of stage 0, under an interleaved schedule"
        return
    per_host = 1
    if placement.num_hosts == 1:
        island = costs.cluster.servers[placement.server_class].islands[placement.island]
        per_host = island.count // placement.devices_per_host
    for index in range(1, len(groups)):
        if (groups[index].hosts == groups[index - 1].hosts) == (index % per_host == 0):
            yield f"stage {index}: interleaved device groups fill one host after the other, {per_host} on each"
            return
