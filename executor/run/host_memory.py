"""Whether main memory is enough for a dilated run."""

from stagecut.executor.dilated.stand_in_layers import WIDTH
from stagecut.executor.execution_plan import ExecutionPlan
from stagecut.executor.run.options import RunOptions
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.sublot_costs import sublot_cut
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.report.labels import bytes_label

PROCESS_BYTES = 260e6
"""A process that has imported torch, without layers."""
THREAD_BYTES = 4e6
"""A rank that is a thread: its stack, action lists and messages."""
_NUMBER_BYTES = Precision.FP32.num_bytes


def check_memory(
    plan_file: PlanFile, execution: ExecutionPlan, options: RunOptions, *, together: bool, free_bytes: float | None
) -> None:
    """Refuse a dilated run that does not fit in main memory.

    Parameters
    ----------
    together
        Whether the ranks are threads of one process.
    free_bytes
        None if unknown; then nothing is refused.

    Raises
    ------
    BadInputError
        It says how much is needed, how much is free, and what would need less.
    """
    needed_bytes = needed_memory_bytes(plan_file, execution, options, together=together)
    if options.mode is not RunMode.DILATED or free_bytes is None or needed_bytes <= free_bytes:
        return
    kind = "threads of one process" if together else "processes"
    layers = "stand-ins for the layers" if options.stand_ins else "the model's layers"
    remedy = (
        "omit --own-processes, so that all ranks share one process"
        if options.stand_ins
        else "omit --real-layers or --layers, to run small stand-ins instead"
    )
    raise BadInputError(
        f"--mode dilated: {execution.layout.world_size} ranks as {kind}, with {layers}, take about "
        f"{bytes_label(needed_bytes)} of memory, but only {bytes_label(free_bytes)} are free; {remedy}, or close other "
        "programs"
    )


def needed_memory_bytes(plan_file: PlanFile, execution: ExecutionPlan, options: RunOptions, *, together: bool) -> float:
    """Main memory taken by all ranks, for the runtime and for their layers."""
    num_ranks = execution.layout.world_size
    runtime_bytes = PROCESS_BYTES + THREAD_BYTES * num_ranks if together else PROCESS_BYTES * (num_ranks + 1)
    return runtime_bytes + (_stand_in_bytes(execution) if options.stand_ins else _layer_bytes(plan_file))


def _stand_in_bytes(execution: ExecutionPlan) -> float:
    """What autograd keeps between forward and backward, and the whole batch."""
    plan = execution.plan
    kept = sum(
        in_flight * (stage.stop - stage.start + 2)
        for stage, in_flight in zip(plan.stages, sublot_cut(plan).in_flight, strict=True)
    )
    num_samples = 2 * kept * len(plan.pipelines) + 4 * execution.global_batch
    return float(WIDTH * _NUMBER_BYTES * num_samples)


def _layer_bytes(plan_file: PlanFile) -> float:
    """The planned memory of all devices, except that activations are in fp32 here."""
    problem, plan = plan_file.problem, plan_file.plan
    costs = CostModel(problem).plan(plan)
    wider = _NUMBER_BYTES / problem.model.precision.num_bytes
    saved_bytes = costs.warmup_depth * costs.saved_bytes + costs.working_bytes
    own_bytes = (costs.static_bytes + wider * saved_bytes).tolist()
    total_bytes = sum(len(stage.devices) * own for stage, own in zip(plan.stages, own_bytes, strict=True))
    return float(total_bytes) * len(plan.pipelines)
