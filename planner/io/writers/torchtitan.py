"""Plans as torchtitan configurations: a TOML file for torchtitan 0.2, command-line flags for 0.3.

`module_fqns_per_model_part` lists the modules of every stage by the names in torchtitan's decoder models:
`tok_embeddings`, `layers.0` ..., `norm` and the head, which is `output` in 0.2 and `lm_head` in 0.3. A name that a
model lacks is passed over in silence, so the right one matters. Schedules are those of torch.distributed.pipelining.
A custom order is a CSV file for `PipelineScheduleMulti`, with a row for each rank of the pipeline and an action
such as `0F3` or `1B0` (stage, forward or backward, micro-batch) in each column.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from stagecut.planner.core.frameworks import Framework
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.operators.strategy import WeightStorage
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.writers.blocks import StageBlocks, block_faults, stage_blocks
from stagecut.planner.io.writers.launch import Export, folder_files
from stagecut.planner.io.writers.uniform_plan import UniformPlan, cuts_of, is_tied, uniform_plan

CUSTOM = "PipelineScheduleMulti"
TOML, FLAGS, ORDER = "torchtitan-0.2.toml", "torchtitan-0.3.flags", "order.csv"
TOML_HEAD, FLAGS_HEAD = "output", "lm_head"
RESHARDS = {WeightStorage.OPTIMIZER: "never", WeightStorage.GRADIENTS: "never", WeightStorage.WEIGHTS: "always"}
"""When FSDP drops gathered weights: after the backward only, as in ZeRO-2, or after the forward too.

A pipeline keeps them, and all gradients, to the end of the iteration, as in ZeRO-1.
"""
SCHEDULES = {
    Schedule.GPIPE: "GPipe",
    Schedule.ONE_F_ONE_B: "1F1B",
    Schedule.EAGER_ONE_F_ONE_B: CUSTOM,
    Schedule.INTERLEAVED: "Interleaved1F1B",
}
DTYPES = {Precision.FP32: "float32", Precision.BF16: "bfloat16"}

Settings = dict[str, dict[str, object]]
"""Values by table and key."""


def torchtitan_toml(problem: Problem, plan: Plan, *, schedule_csv: str | None = None) -> str:
    """The TOML tables that follow from the plan, for torchtitan 0.2.

    `schedule_csv` is the path of the file with :func:`schedule_rows`, required for schedules that torch lacks.
    Raises the errors of :func:`stagecut.planner.io.writers.uniform_plan.uniform_plan`.
    """
    return _toml(_checked(problem, plan, schedule_csv), schedule_csv)


def torchtitan_files(problem: Problem, plan: Plan, *, actions: Sequence[Sequence[str]]) -> dict[str, str]:
    """Both forms, and the order of the actions where torch has no schedule of that name; raises the same errors."""
    schedule_csv = ORDER if SCHEDULES.get(plan.schedule) == CUSTOM else None
    uniform = _checked(problem, plan, schedule_csv)
    orders = {} if schedule_csv is None else {ORDER: schedule_rows(actions)}
    export = Export(
        framework="torchtitan, read in 0.2.2 and 0.3.0",
        command=f"-m torchtitan.train --module llama3 --config llama3_8b $(grep -v '^#' {FLAGS})",
        files={FLAGS: _flags(uniform, schedule_csv), TOML: _toml(uniform, schedule_csv), **orders},
        meanings={
            FLAGS: "what follows from the plan, for torchtitan 0.3",
            TOML: "the same for torchtitan 0.2",
            **dict.fromkeys(orders, "the order of forwards and backwards, a row for each device group"),
        },
        notes=(
            "Write the module and the configuration of your model behind `--module` and `--config`; flags of your own "
            f"belong before those of `{FLAGS}`, which ends in a subcommand.",
            f"torchtitan 0.2: `torchrun ... -m torchtitan.train --job.config_file {TOML}`, with your tables `model`, "
            "`optimizer` and so on added to the file.",
        ),
    )
    return folder_files(uniform, export)


def schedule_rows(actions: Sequence[Sequence[str]]) -> str:
    """The CSV text with the actions of each rank; shorter rows are padded with empty columns."""
    columns = zip_longest(*actions, fillvalue="")
    return "".join(",".join(row) + "\n" for row in zip(*columns, strict=True))


def module_names(stage: StageBlocks, head: str) -> list[str]:
    """Names of the modules in a stage."""
    return [
        *(["tok_embeddings"] if stage.embedding else []),
        *(f"layers.{number}" for number in stage.blocks),
        *(["norm", head] if stage.head else []),
    ]


def _checked(problem: Problem, plan: Plan, schedule_csv: str | None) -> UniformPlan:
    faults = [*block_faults(problem.model, cuts_of(plan), framework="torchtitan"), *_pipeline_faults(problem, plan)]
    if SCHEDULES[plan.schedule] == CUSTOM and schedule_csv is None:
        faults.append(f"torch has no schedule {plan.schedule}; write its actions to a file with --schedule-csv FILE")
    if any("\ud800" <= letter <= "\udfff" for letter in schedule_csv or ""):  # undecodable bytes of the path
        faults.append("--schedule-csv: the path is not valid UTF-8, which TOML requires; choose another path")
    if problem.job.precision not in DTYPES:
        faults.append(f"it trains in bf16 or fp32, not {problem.job.precision}; solve with --precision bf16")
    return uniform_plan(problem, plan, framework=Framework.TORCHTITAN, schedules=SCHEDULES, faults=faults)


def _pipeline_faults(problem: Problem, plan: Plan) -> Iterator[str]:
    stages = len(plan.stages)
    if stages > 1 and is_tied(problem.model):
        yield "its models cannot share the weights of embedding and head between pipeline stages"
    if plan.schedule in (Schedule.GPIPE, Schedule.ONE_F_ONE_B) and plan.num_microbatches < stages:
        yield f"{plan.schedule} needs as many micro-batches as stages, {stages}, not {plan.num_microbatches}"


def _settings(uniform: UniformPlan) -> Settings:
    """What both versions call alike."""
    degrees, problem, plan = uniform.degrees, uniform.problem, uniform.plan
    in_pipeline = plan.num_groups > 1
    parts, storage = _sharded(uniform)
    training: dict[str, object] = {
        "local_batch_size": uniform.samples_per_replica * (plan.num_microbatches if in_pipeline else 1),
        "global_batch_size": problem.job.global_batch,
    }
    if problem.model.sequence_length is not None:
        training["seq_len"] = problem.model.sequence_length
    training["mixed_precision_param"] = DTYPES[problem.job.precision]
    parallelism: dict[str, object] = {
        "data_parallel_replicate_degree": uniform.data_parallel // parts,
        "data_parallel_shard_degree": parts,
        **({"fsdp_reshard_after_forward": RESHARDS[storage]} if storage in RESHARDS else {}),
        "tensor_parallel_degree": degrees.tensor,
        **({"context_parallel_degree": degrees.context} if degrees.context > 1 else {}),
        **({"expert_parallel_degree": degrees.experts} if degrees.experts > 1 else {}),
        "pipeline_parallel_degree": plan.num_groups,
    }
    return {"training": training, "parallelism": parallelism}


def _sharded(uniform: UniformPlan) -> tuple[int, WeightStorage]:
    """Parts of the samples over which FSDP divides weights, and what it keeps in parts."""
    storage = uniform.degrees.storage
    if uniform.problem.job.zero1 and uniform.num_state_parts > 1:
        return uniform.data_parallel, WeightStorage.OPTIMIZER
    return (1 if storage is WeightStorage.REPLICATED else uniform.degrees.data), storage


def _pipeline(uniform: UniformPlan, schedule_csv: str | None) -> dict[str, object]:
    if uniform.plan.num_groups == 1:
        return {}
    return {
        "pipeline_parallel_microbatch_size": uniform.samples_per_replica,
        "pipeline_parallel_schedule": SCHEDULES[uniform.plan.schedule] if schedule_csv is None else CUSTOM,
        **({} if schedule_csv is None else {"pipeline_parallel_schedule_csv": schedule_csv}),
    }


def _modules(uniform: UniformPlan, head: str) -> list[list[str]]:
    if uniform.plan.num_groups == 1:
        return []
    return [module_names(stage, head) for stage in stage_blocks(uniform.problem.model, cuts_of(uniform.plan))]


def _heading(uniform: UniformPlan) -> list[str]:
    ranks = (f"# rank {rank}: {visible(device)}" for rank, device in enumerate(uniform.ranked_devices.devices))
    return [f"# {visible(uniform.problem.model.name)} on {visible(uniform.problem.cluster.name)}", *ranks]


def _toml(uniform: UniformPlan, schedule_csv: str | None) -> str:
    settings = _settings(uniform)
    if _has_whole_weights(uniform) and uniform.problem.job.precision is Precision.BF16:
        settings["training"]["dtype"] = "bfloat16"
    settings["parallelism"].update(_pipeline(uniform, schedule_csv))
    settings["activation_checkpoint"] = {"mode": "full" if uniform.stage.recompute else "none"}
    lines = _heading(uniform)
    for table, values in settings.items():
        lines += ["", f"[{table}]", *(f"{key} = {_value(value)}" for key, value in values.items())]
        if table == "parallelism" and (modules := _modules(uniform, TOML_HEAD)):
            lines += ["module_fqns_per_model_part = [", *(f"    {json.dumps(names)}," for names in modules), "]"]
    return "\n".join(lines) + "\n"


def _has_whole_weights(uniform: UniformPlan) -> bool:
    """Whether no weights are in parts, where 0.2 has mixed precision for data parallelism alone."""
    shared = uniform.plan.num_groups > 1 or uniform.degrees.tensor > 1
    return shared and _sharded(uniform)[0] * uniform.degrees.context == 1


def _flags(uniform: UniformPlan, schedule_csv: str | None) -> str:
    settings = _settings(uniform)
    settings["parallelism"].update(_pipeline(uniform, schedule_csv))
    lines = [f"--{table}.{key} {value}" for table, values in settings.items() for key, value in values.items()]
    if modules := _modules(uniform, FLAGS_HEAD):
        lines.append("--parallelism.module_fqns_per_model_part " + " ".join(",".join(names) for names in modules))
    if uniform.plan.num_groups > 1 or uniform.degrees.experts > 1:
        lines.append("--training.disable_cuda_graphs")
    lines.append(f"activation_checkpoint:{'full' if uniform.stage.recompute else 'none'}")
    return "\n".join([*_heading(uniform), *lines]) + "\n"


def _value(value: object) -> str:
    """A number, or a TOML string: as in JSON, but with a single escape for a code point beyond U+FFFF."""
    if not isinstance(value, str):
        return str(value)
    return "".join(f"\\U{ord(a):08x}" if ord(a) > 0xFFFF else json.dumps(a)[1:-1] for a in value).join('""')
