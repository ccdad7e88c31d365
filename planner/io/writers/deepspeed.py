"""Plans for DeepSpeed's pipeline engine.

A `PipelineModule` splits its list of layers at the bounds `parts`: stage s has the layers
[parts[s], parts[s + 1]). It computes these bounds itself, so a subclass has to set them; docs/convert.md shows
how. The only schedule is 1F1B, all stages share one activation checkpoint interval, and ranks are numbered as in
`PipeModelDataParallelTopology`: pipeline slowest, then data, then model.
"""

from collections.abc import Iterator

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.strategy import WeightStorage
from stagecut.planner.io.documents.canonical import Tree, TreeValue
from stagecut.planner.io.writers.uniform_plan import UniformPlan, cuts_of, uniform_plan

SCHEDULES = {Schedule.ONE_F_ONE_B: "1F1B"}


def deepspeed_tree(problem: Problem, plan: Plan) -> Tree:
    """Bounds, arguments of the topology and the module, and entries of the configuration file.

    Raises the errors of :func:`stagecut.planner.io.writers.uniform_plan.uniform_plan`.
    """
    uniform = uniform_plan(problem, plan, target="DeepSpeed", schedules=SCHEDULES, limits=_limits)
    return {
        "parts": list(cuts_of(plan)),
        "layers": [layer.name for layer in problem.model.layers],
        "topology": {
            "num_pp": uniform.plan.num_groups,
            "num_mp": uniform.degrees.tensor,
            "num_dp": uniform.data_parallel,
        },
        "activation_checkpoint_interval": int(uniform.stage.recompute),
        "devices_by_rank": list(uniform.devices_by_rank),
        "config": _configuration(uniform),
    }


def _configuration(uniform: UniformPlan) -> Tree:
    tree: dict[str, TreeValue] = {
        "train_batch_size": uniform.problem.job.global_batch,
        "train_micro_batch_size_per_gpu": uniform.samples_per_replica,
        "gradient_accumulation_steps": uniform.plan.num_microbatches,
    }
    if uniform.problem.job.precision is not Precision.FP32:
        tree[str(uniform.problem.job.precision)] = {"enabled": True}
    if uniform.num_state_parts > 1 or uniform.problem.job.zero1:
        tree["zero_optimization"] = {"stage": 1}
    return tree


def _limits(uniform: UniformPlan) -> Iterator[str]:
    """What of the degrees the pipeline engine lacks."""
    degrees = uniform.degrees
    if degrees.storage in (WeightStorage.GRADIENTS, WeightStorage.WEIGHTS):
        yield f"its pipeline engine stores no {degrees.storage} in parts (ZeRO-2, ZeRO-3)"
    elif uniform.num_state_parts > 1 and not uniform.has_zero1_everywhere:
        yield "its ZeRO-1 divides the optimizer state among all data-parallel devices, or none; solve with --zero1"
    for what, degree in (("context", degrees.context), ("expert", degrees.experts)):
        if degree > 1:
            yield f"its pipeline engine has no {what} parallelism, got {degree}"
