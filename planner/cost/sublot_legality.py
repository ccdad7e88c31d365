"""Whether the sublot sizes of a plan belong to the search space (docs/search_space.md), and if not, why."""

from collections.abc import Iterator
from dataclasses import replace

from stagecut.planner.core.job import Job
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.sublot_sizes import is_union


def sublot_faults(job: Job, plan: Plan) -> Iterator[str]:
    """What is wrong with the sublot sizes of a plan, memory aside."""
    if not job.unequal:
        yield "unequal micro-batches are not allowed by the job"
        return
    if plan.schedule is not Schedule.GPIPE or plan.num_microbatches != 1:
        held = f"{plan.num_microbatches} micro-batches of {plan.micro_batch} under {plan.schedule}"
        yield f"unequal micro-batches need a flush, one micro-batch of all samples under gpipe, not {held}"
    for index, stage in enumerate(plan.stages):
        yield from (f"stage {index}: {fault}" for fault in _stage_faults(job, plan.num_samples, stage))


def _stage_faults(job: Job, num_samples: int, stage: Stage) -> Iterator[str]:
    sizes = {
        "forwards": stage.forward_micro_batch,
        "backwards": stage.backward_micro_batch,
        "messages of activations": stage.forward_message,
        "messages of gradients": stage.backward_message,
    }
    for process, size in sizes.items():
        if size is not None and size not in job.micro_batches:
            yield f"{process} of {size} samples, where the job allows {', '.join(map(str, job.micro_batches))}"
        elif size is not None and size > num_samples:
            yield f"{process} of {size} samples, where there are only {num_samples}"
    for process in ("forwards", "backwards"):
        if (sizes[process] or 0) % stage.replicas:
            yield f"{process} of {sizes[process]} samples, which {stage.replicas} replicas do not divide"
    if not is_union(num_samples, stage.forward_micro_batch, stage.backward_micro_batch):
        yield (
            f"backwards of {stage.backward_micro_batch} samples cut through forwards of {stage.forward_micro_batch}; "
            "every backward must be a union of forwards"
        )


def least_sizes(job: Job, plan: Plan) -> Plan:
    """The plan with the smallest computations that the job allows each stage: where these do not fit, none does."""

    def least(stage: Stage) -> Stage:
        own = stage.forward_micro_batch
        size = min((size for size in job.micro_batches if size % stage.replicas == 0), default=own)
        depth = -(-plan.num_samples // size)
        return replace(stage, forward_micro_batch=size, backward_micro_batch=size, warmup_depth=depth)

    first, *others = plan.pipelines
    return replace(plan, pipelines=(Pipeline(stages=tuple(map(least, first.stages))), *others))
