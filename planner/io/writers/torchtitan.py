"""Plans as torchtitan configurations.

`parallelism.module_fqns_per_model_part` lists the modules of every stage by the names in torchtitan's decoder
models: `tok_embeddings`, `layers.0` ..., `norm`, `output`. Schedules are those of torch.distributed.pipelining.
A custom order is a CSV file for `PipelineScheduleMulti`, with a row for each rank of the pipeline and an action
such as `0F3` or `1B0` (stage, forward or backward, micro-batch) in each column.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.strategy import WeightStorage
from stagecut.planner.core.visible import visible
from stagecut.planner.io.writers.blocks import StageBlocks, block_faults, stage_blocks
from stagecut.planner.io.writers.uniform_plan import UniformPlan, cuts_of, uniform_plan

CUSTOM = "PipelineScheduleMulti"
RESHARDS = {WeightStorage.GRADIENTS: "never", WeightStorage.WEIGHTS: "always"}
"""When FSDP drops gathered weights: after the backward only, as in ZeRO-2, or after the forward too."""
SCHEDULES = {
    Schedule.GPIPE: "GPipe",
    Schedule.ONE_F_ONE_B: "1F1B",
    Schedule.EAGER_ONE_F_ONE_B: CUSTOM,
    Schedule.INTERLEAVED: "Interleaved1F1B",
}


def torchtitan_toml(problem: Problem, plan: Plan, *, schedule_csv: str | None = None) -> str:
    """The TOML tables that follow from the plan.

    `schedule_csv` is the path of the file with :func:`schedule_rows`, required for schedules that torch lacks.
    Raises the errors of :func:`stagecut.planner.io.writers.uniform_plan.uniform_plan`.
    """
    faults = [*block_faults(problem.model, cuts_of(plan))]
    if SCHEDULES[plan.schedule] == CUSTOM and schedule_csv is None:
        faults.append(f"torch has no schedule {plan.schedule}; write its actions to a file with --schedule-csv FILE")
    if any("\ud800" <= letter <= "\udfff" for letter in schedule_csv or ""):  # undecodable bytes of the path
        faults.append("--schedule-csv: the path is not valid UTF-8, which TOML requires; choose another path")
    uniform = uniform_plan(problem, plan, target="torchtitan", schedules=SCHEDULES, faults=faults, limits=_limits)
    stages = stage_blocks(problem.model, cuts_of(plan))
    lines = [
        f"# {visible(problem.model.name)} on {visible(problem.cluster.name)}",
        *(f"# rank {rank}: {visible(device)}" for rank, device in enumerate(uniform.devices_by_rank)),
        "",
        "[training]",
        f"local_batch_size = {uniform.samples_per_replica * plan.num_microbatches}",
        f"global_batch_size = {problem.job.global_batch}",
        *([] if problem.model.sequence_length is None else [f"seq_len = {problem.model.sequence_length}"]),
        "",
        "[parallelism]",
        *_parallelism(uniform, stages, schedule_csv),
        "",
        "[activation_checkpoint]",
        f'mode = "{"full" if uniform.stage.recompute else "none"}"',
    ]
    return "\n".join(lines) + "\n"


def schedule_rows(actions: Sequence[Sequence[str]]) -> str:
    """The CSV text with the actions of each rank; shorter rows are padded with empty columns."""
    columns = zip_longest(*actions, fillvalue="")
    return "".join(",".join(row) + "\n" for row in zip(*columns, strict=True))


def module_names(stage: StageBlocks) -> list[str]:
    """Names of the modules in a stage."""
    return [
        *(["tok_embeddings"] if stage.embedding else []),
        *(f"layers.{number}" for number in stage.blocks),
        *(["norm", "output"] if stage.head else []),
    ]


def _parallelism(uniform: UniformPlan, stages: tuple[StageBlocks, ...], schedule_csv: str | None) -> list[str]:
    modules = ",\n".join(f"    {json.dumps(module_names(stage))}" for stage in stages)
    schedule = SCHEDULES[uniform.plan.schedule] if schedule_csv is None else CUSTOM
    degrees = uniform.degrees
    sharded = degrees.data if degrees.storage in RESHARDS else 1
    return [
        f"data_parallel_replicate_degree = {uniform.data_parallel // sharded}",
        f"data_parallel_shard_degree = {sharded}",
        *([f'fsdp_reshard_after_forward = "{RESHARDS[degrees.storage]}"'] if degrees.storage in RESHARDS else []),
        f"tensor_parallel_degree = {degrees.tensor}",
        *(["enable_sequence_parallel = false"] if degrees.tensor > 1 and not degrees.sequence else []),
        *([f"context_parallel_degree = {degrees.context}"] if degrees.context > 1 else []),
        *([f"expert_parallel_degree = {degrees.experts}"] if degrees.experts > 1 else []),
        f"pipeline_parallel_degree = {uniform.plan.num_groups}",
        f"pipeline_parallel_microbatch_size = {uniform.samples_per_replica}",
        f'pipeline_parallel_schedule = "{schedule}"',
        *([] if schedule_csv is None else [f"pipeline_parallel_schedule_csv = {_quoted(schedule_csv)}"]),
        f"module_fqns_per_model_part = [\n{modules},\n]",
    ]


def _limits(uniform: UniformPlan) -> Iterator[str]:
    """What of the degrees torchtitan lacks: it stores weights in parts wherever tokens or experts are divided."""
    degrees = uniform.degrees
    if degrees.storage is WeightStorage.OPTIMIZER or (uniform.problem.job.zero1 and uniform.num_copies > 1):
        yield "it has no ZeRO-1; solve with --no-zero1, or with a --sharding of fsdp in place of zero1"
    if degrees.storage is WeightStorage.REPLICATED and (degrees.context > 1 or degrees.experts > 1):
        yield f"{degrees} without weights in parts; solve with --sharding that has fsdp"
    if degrees.experts > 1 and degrees.experts % degrees.context:
        yield f"it divides experts over all devices of context parallelism, not {degrees.experts} of {degrees.context}"
    if degrees.tensor > 1 and degrees.experts > 1:
        yield "its experts are not divided by tensor parallelism as well"


def _quoted(text: str) -> str:
    """A TOML string: as in JSON, but with a single escape for a code point beyond U+FFFF."""
    return "".join(f"\\U{ord(a):08x}" if ord(a) > 0xFFFF else json.dumps(a)[1:-1] for a in text).join('""')
