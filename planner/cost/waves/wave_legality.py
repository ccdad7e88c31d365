"""Whether a plan of virtual workers belongs to the search space, and if not, why."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from stagecut.planner.core.job import AUTO, Recompute, WaveChoices
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.units import format_bytes
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import LocalStep, ShardPlacement
from stagecut.planner.cost.waves.wave_costs import WaveCostModel


def wave_faults(cost_model: WaveCostModel, plan: WavePlan, job_choices: WaveChoices) -> tuple[str, ...]:
    """Every way in which a plan leaves the search space of the problem, in words; none for a legal plan.

    The allocation is no part of it: policies are ways to find workers, and any workers may be simulated and run.
    """
    found = [*_rule_faults(plan, job_choices), *_in_flight_faults(plan, job_choices)]
    for number, worker in enumerate(plan.workers):
        own = (*_worker_faults(cost_model, worker, plan), *_wave_length_faults(plan, worker, job_choices))
        found += [f"worker {number}: {fault}" for fault in own]
    num_layers = cost_model.problem.model.num_layers
    if plan.num_layers != num_layers:  # a worker has no gaps by construction
        found.append(f"the last stages end at layer {plan.num_layers}, the model at {num_layers}")
    unknown = list(_unknown_faults(cost_model, plan))
    if unknown or plan.num_layers != num_layers:
        return (*found, *unknown)
    return (*found, *_owner_faults(plan), *_memory_faults(cost_model, plan))


def most_in_flight(num_stages: int) -> int:
    """The largest N_m that is chosen for workers of up to so many stages: 4 S - 3.

    Each stage then holds up to 4 minibatches more than the one behind it. Two neighbours take turns in a cycle that
    spans 5 periods: 2 at most are what they compute, so that 1.5 remain for each of the two messages between them, of
    which a link needs 1 at most. More minibatches in flight would only wait in longer queues.
    """
    return 4 * num_stages - 3


def _rule_faults(plan: WavePlan, choices: WaveChoices) -> Iterator[str]:
    """The job allows what holds for all workers."""
    for words, value, wanted in (
        ("clock distance", plan.clock_distance, choices.clock_distance),
        ("local step", plan.local_step, choices.local_step),
        ("carrier", plan.carrier, choices.carrier),
        ("shards", plan.shards, choices.shards),
    ):
        if value != wanted:
            yield f"{words} {value}, where the job asks for {wanted}"
    if choices.num_workers not in {AUTO, len(plan.workers)}:
        yield f"{len(plan.workers)} virtual workers, where the job asks for {choices.num_workers}"


def _in_flight_faults(plan: WavePlan, choices: WaveChoices) -> Iterator[str]:
    """What is left open has a limit, unless workers make one step a wave."""
    longest = max(worker.num_stages for worker in plan.workers)
    number, most = max(worker.in_flight for worker in plan.workers), most_in_flight(longest)
    if choices.in_flight == AUTO and plan.local_step is LocalStep.MINIBATCH and number > most:
        yield f"{number} minibatches in flight, where workers of up to {longest} stages have at most {most}"


def _wave_length_faults(plan: WavePlan, worker: VirtualWorker, choices: WaveChoices) -> Iterator[str]:
    if choices.in_flight not in {AUTO, worker.in_flight}:
        yield f"{worker.in_flight} minibatches in flight, where the job asks for {choices.in_flight}"
    first = plan.workers[0]
    if not choices.proportional and worker.wave != first.wave:
        unlike = f"unlike the {first.wave} of worker 0, where the job asks for equal ones"
        yield f"waves of {worker.wave} minibatches, {unlike}"
    if worker.wave != worker.in_flight and (plan.local_step is LocalStep.WAVE or not choices.proportional):
        yield f"waves of {worker.wave} minibatches, unlike the {worker.in_flight} in flight"


def _worker_faults(model: WaveCostModel, worker: VirtualWorker, plan: WavePlan) -> Iterator[str]:
    """Minibatch, order of work and messages."""
    size = model.problem.job.micro_batches[0]
    if worker.minibatch != size:
        yield f"minibatches of {worker.minibatch}, where the job has {size}"
    for index, stage in enumerate(worker.stages):
        if (stage.forward_message, stage.backward_message) != (None, None):
            yield f"stage {index}: has message sizes of its own"


def _unknown_faults(model: WaveCostModel, plan: WavePlan) -> Iterator[str]:
    """Devices and hosts belong to the cluster."""
    for number, worker in enumerate(plan.workers):
        for index, device in enumerate(worker.devices):
            try:
                model.group(device)
            except BadInputError as fault:
                yield f"worker {number}: stage {index}: {str(fault).removeprefix('stage: ')}"
    hosts = {name for index in range(len(model.cluster.servers)) for name in model.cluster.host_names(index)}
    for owner in dict.fromkeys(plan.owners):
        if owner not in hosts:
            yield f"owner {owner!r} is no host of cluster {model.cluster.name!r}"


def _owner_faults(plan: WavePlan) -> Iterator[str]:
    """Local shards are owned where most workers hold them."""
    if plan.shards is not ShardPlacement.LOCAL:
        return
    for layer, owner in enumerate(plan.owners):
        held = Counter(
            stage.devices[0].rpartition("/")[0]
            for worker in plan.workers
            for stage in worker.stages
            if stage.start <= layer < stage.stop
        )
        if held[owner] < max(held.values()):
            most = max(held, key=held.__getitem__)
            counts = f"by {held[owner]} workers there and by {held[most]} on {most!r}"
            yield f"layer {layer}: owned by {owner!r}, held {counts}, where shards are local"


def _memory_faults(model: WaveCostModel, plan: WavePlan) -> Iterator[str]:
    """Every stage fits, and recomputes as the job says; with `auto`, where it would not fit otherwise."""
    policy = model.problem.job.recompute
    plain = replace(plan, workers=tuple(_without_recomputation(worker) for worker in plan.workers))
    for number, (own, least) in enumerate(zip(model.plan(plan).workers, model.plan(plain).workers, strict=True)):
        for index, stage in enumerate(own.worker.stages):
            needed, limit = float(own.memory_bytes[index]), float(own.limit_bytes[index])
            where = f"worker {number}: stage {index}:"
            if needed > limit:
                yield f"{where} needs {format_bytes(needed)} of memory and has {format_bytes(limit)}"
            if policy is not Recompute.AUTO and stage.recompute != (policy is Recompute.ALWAYS):
                does = "recomputes" if stage.recompute else "does not recompute"
                yield f"{where} {does}, where the job says {policy}"
            if policy is Recompute.AUTO and stage.recompute and least.memory_bytes[index] <= limit:
                yield f"{where} recomputes although it fits in memory without"


def _without_recomputation(worker: VirtualWorker) -> VirtualWorker:
    return replace(worker, stages=tuple(replace(stage, recompute=False) for stage in worker.stages))
