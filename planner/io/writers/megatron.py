"""Plans as command-line arguments of Megatron-LM.

`--pipeline-model-parallel-layout` has a letter for each part of a stage (`E` embedding, `t` transformer layer,
`L` head with the loss) and a bar between stages, the first chunk of all device groups coming first (see
Megatron-LM's guide on custom pipeline layouts). In the rank order, tensor parallelism varies fastest, then context,
data and pipeline; `--use-tp-pp-dp-mapping` exchanges the last two. Schedules are plain and interleaved 1F1B; either all
layers recompute or none. Gradients and weights in parts (Megatron-FSDP) exclude pipelines.
"""

from collections.abc import Iterator

from stagecut.planner.core.frameworks import RULES, Framework, RankOrder
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.operators.roles import Degrees
from stagecut.planner.core.operators.strategy import WeightStorage
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.writers.blocks import StageBlocks, block_faults, stage_blocks
from stagecut.planner.io.writers.launch import Export, folder_files
from stagecut.planner.io.writers.uniform_plan import UniformPlan, cuts_of, is_tied, uniform_plan

ARGUMENTS = "arguments.txt"
FSDP = {WeightStorage.GRADIENTS: "optim_grads", WeightStorage.WEIGHTS: "optim_grads_params"}
"""Sharding strategies of Megatron-FSDP."""
SCHEDULES = {Schedule.ONE_F_ONE_B: "1F1B", Schedule.INTERLEAVED: "interleaved 1F1B"}


def megatron_arguments(problem: Problem, plan: Plan) -> str:
    """Arguments, one per line, preceded by comments that map ranks to devices.

    Raises the errors of :func:`stagecut.planner.io.writers.uniform_plan.uniform_plan`.
    """
    return _text(_checked(problem, plan))


def megatron_files(problem: Problem, plan: Plan) -> dict[str, str]:
    """The arguments with the commands of all hosts; raises the same errors."""
    uniform = _checked(problem, plan)
    export = Export(
        framework="Megatron-LM, read in megatron-core 0.16.1 and 0.19.2",
        command=f"pretrain_gpt.py $(grep -v '^#' {ARGUMENTS})",
        files={ARGUMENTS: _text(uniform)},
        meanings={ARGUMENTS: "the arguments that follow from the plan"},
        environment=_environment(uniform.degrees),
        notes=(
            "Write the path of Megatron-LM's script, and behind it your arguments for the shape of the model, the "
            "tokenizer, the data and the optimizer.",
            "`pretrain_bert.py` takes the same arguments.",
        ),
    )
    return folder_files(uniform, export)


def layout_of(stages: tuple[StageBlocks, ...]) -> str:
    """The pipeline layout, with runs of transformer layers abbreviated, for example `Et*3|t*2L`."""
    return "|".join(
        "E" * stage.embedding + _run(len(stage.blocks), last=not stage.head) + "L" * stage.head for stage in stages
    )


def _checked(problem: Problem, plan: Plan) -> UniformPlan:
    faults = block_faults(problem.model, cuts_of(plan), framework="megatron")
    if not faults:
        faults = tuple(_empty_groups(plan, stage_blocks(problem.model, cuts_of(plan))))
    framework = Framework.MEGATRON
    orders = RULES[framework].rank_orders_of
    return uniform_plan(problem, plan, framework=framework, schedules=SCHEDULES, faults=faults, orders=orders)


def _empty_groups(plan: Plan, stages: tuple[StageBlocks, ...]) -> Iterator[str]:
    """Device groups that Megatron-LM hangs on: github.com/NVIDIA/Megatron-LM/issues/1852."""
    for group in range(plan.num_groups):
        if not any(stage.blocks for stage in stages[group :: plan.num_groups]):
            yield f"device group {group} has no transformer layer, which is known to hang (issue 1852)"


def _environment(degrees: Degrees) -> dict[str, str]:
    """What its checks ask for before Blackwell, where Megatron-FSDP is not used, which must not have it."""
    shared = degrees.tensor > 1 or degrees.context > 1
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if shared and degrees.storage not in FSDP else {}


def _text(uniform: UniformPlan) -> str:
    problem = uniform.problem
    stages = stage_blocks(problem.model, cuts_of(uniform.plan))
    lines = [
        f"# {visible(problem.model.name)} on {visible(problem.cluster.name)}",
        *(f"# rank {rank}: {visible(device)}" for rank, device in enumerate(uniform.ranked_devices.devices)),
        *(f"--{name} {value}".rstrip() for name, value in _arguments(uniform, stages)),
    ]
    return "\n".join(lines) + "\n"


def _run(count: int, *, last: bool) -> str:
    if count < 2:
        return "t" * count
    return f"t*{count}" if last else f"t*{count},"


def _arguments(uniform: UniformPlan, stages: tuple[StageBlocks, ...]) -> list[tuple[str, object]]:
    job, model = uniform.problem.job, uniform.problem.model
    arguments: list[tuple[str, object]] = [
        ("num-layers", sum(len(stage.blocks) for stage in stages)),
        ("tensor-model-parallel-size", uniform.degrees.tensor),
        ("pipeline-model-parallel-size", uniform.plan.num_groups),
        ("micro-batch-size", uniform.samples_per_replica),
        ("global-batch-size", job.global_batch),
    ]
    if len(stages) > 1:
        arguments.append(("pipeline-model-parallel-layout", layout_of(stages)))
    if uniform.ranked_devices.order is RankOrder.COPIES_LAST:
        arguments.append(("use-tp-pp-dp-mapping", ""))
    if model.sequence_length is not None:
        arguments.append(("seq-length", model.sequence_length))
    if not is_tied(model):
        arguments.append(("untie-embeddings-and-output-weights", ""))
    if job.precision is not Precision.FP32:
        arguments.append((str(job.precision), ""))
    if uniform.stage.recompute:
        arguments += [("recompute-granularity", "full"), ("recompute-method", "uniform"), ("recompute-num-layers", 1)]
    return [*arguments, *_degree_arguments(uniform), *_storage_arguments(uniform)]


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
