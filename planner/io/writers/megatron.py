"""Plans as command-line arguments of Megatron-LM.

`--pipeline-model-parallel-layout` has a letter for each part of a stage (`E` embedding, `t` transformer layer,
`L` head with the loss) and a bar between stages, the first chunk of all device groups coming first (see
Megatron-LM's guide on custom pipeline layouts). In the rank order, tensor parallelism varies fastest, then context,
data and pipeline. Schedules are plain and interleaved 1F1B; either all layers recompute or none. Gradients and weights
in parts (Megatron-FSDP) exclude pipelines.
"""

from collections.abc import Iterator

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.strategy import WeightStorage
from stagecut.planner.io.writers.blocks import StageBlocks, block_faults, stage_blocks
from stagecut.planner.io.writers.uniform_plan import UniformPlan, cuts_of, uniform_plan

FSDP = {WeightStorage.GRADIENTS: "optim_grads", WeightStorage.WEIGHTS: "optim_grads_params"}
"""Sharding strategies of Megatron-FSDP."""
SCHEDULES = {Schedule.ONE_F_ONE_B: "1F1B", Schedule.INTERLEAVED: "interleaved 1F1B"}


def megatron_arguments(problem: Problem, plan: Plan) -> str:
    """Arguments, one per line, preceded by comments that map ranks to devices.

    Raises the errors of :func:`stagecut.planner.io.writers.uniform_plan.uniform_plan`.
    """
    faults = block_faults(problem.model, cuts_of(plan))
    uniform = uniform_plan(problem, plan, target="Megatron-LM", schedules=SCHEDULES, faults=faults, limits=_limits)
    stages = stage_blocks(problem.model, cuts_of(plan))
    lines = [
        f"# {problem.model.name} on {problem.cluster.name}",
        *(f"# rank {rank}: {device}" for rank, device in enumerate(uniform.devices_by_rank)),
        *(f"--{name} {value}".rstrip() for name, value in _arguments(uniform, stages)),
    ]
    return "\n".join(lines) + "\n"


def layout_of(stages: tuple[StageBlocks, ...]) -> str:
    """The pipeline layout, with runs of transformer layers abbreviated, for example `Et*3|t*2L`."""
    return "|".join(
        "E" * stage.embedding + _run(len(stage.blocks), last=not stage.head) + "L" * stage.head for stage in stages
    )


def _run(count: int, *, last: bool) -> str:
    if count < 2:
        return "t" * count
    return f"t*{count}" if last else f"t*{count},"


def _arguments(uniform: UniformPlan, stages: tuple[StageBlocks, ...]) -> list[tuple[str, object]]:
    job = uniform.problem.job
    arguments: list[tuple[str, object]] = [
        ("num-layers", sum(len(stage.blocks) for stage in stages)),
        ("tensor-model-parallel-size", uniform.degrees.tensor),
        ("pipeline-model-parallel-size", uniform.plan.num_groups),
        ("micro-batch-size", uniform.samples_per_replica),
        ("global-batch-size", job.global_batch),
    ]
    if len(stages) > 1:
        arguments.append(("pipeline-model-parallel-layout", layout_of(stages)))
    if uniform.problem.model.sequence_length is not None:
        arguments.append(("seq-length", uniform.problem.model.sequence_length))
    if job.precision is not Precision.FP32:
        arguments.append((str(job.precision), ""))
    if uniform.stage.recompute:
        arguments += [("recompute-granularity", "full"), ("recompute-method", "uniform"), ("recompute-num-layers", 1)]
    return [*arguments, *_degree_arguments(uniform), *_storage_arguments(uniform)]


def _limits(uniform: UniformPlan) -> Iterator[str]:
    """What of the degrees Megatron-LM lacks."""
    degrees, zero1 = uniform.degrees, uniform.problem.job.zero1
    if degrees.storage in FSDP and len(uniform.plan.stages) > 1:
        yield f"{degrees.storage} in parts (Megatron-FSDP) need a single stage"
    if zero1 and uniform.num_copies > 1 and (degrees.storage in FSDP or not uniform.has_zero1_everywhere):
        shared = f"{degrees.storage} in parts" if degrees.storage in FSDP else f"{degrees.num_summed} whole ones inside"
        yield f"ZeRO-1 over {uniform.num_copies} copies of a stage needs it inside each as well, not {shared}"


def _degree_arguments(uniform: UniformPlan) -> Iterator[tuple[str, object]]:
    degrees = uniform.degrees
    if degrees.sequence:
        yield "sequence-parallel", ""
    if degrees.context > 1:
        yield "context-parallel-size", degrees.context
        yield "cp-comm-type", "all_gather"
    if degrees.experts > 1:
        yield "expert-model-parallel-size", degrees.experts


def _storage_arguments(uniform: UniformPlan) -> Iterator[tuple[str, object]]:
    degrees = uniform.degrees
    if uniform.num_state_parts > 1 or uniform.problem.job.zero1:
        yield "use-distributed-optimizer", ""
        if not uniform.has_zero1_everywhere:
            yield "num-distributed-optimizer-instances", uniform.num_copies
    if degrees.storage in FSDP:
        yield "use-megatron-fsdp", ""
        yield "data-parallel-sharding-strategy", FSDP[degrees.storage]
        yield "no-gradient-accumulation-fusion", ""
        yield "ckpt-format", "fsdp_dtensor"
