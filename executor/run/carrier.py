"""What carries the ranks of a run on one machine, processes or threads, and whether memory is enough for them."""

from stagecut.executor.design import Design
from stagecut.executor.dilated.stand_in_layers import WIDTH
from stagecut.executor.run.options import RunOptions
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.report.labels import bytes_label

PROCESS_BYTES = 260e6
"""Of a process that has imported torch, without its layers."""
THREAD_BYTES = 4e6
"""Of a rank that is a thread: its stack, action lists and messages."""
_NUMBER_BYTES = Precision.FP32.num_bytes


def runs_together(design: Design, options: RunOptions, *, wanted: bool | None) -> bool:
    """Whether all ranks are threads of one process.

    Dilated runs are, unless something needs processes: their work is small, and threads take a fiftieth of the memory.

    Parameters
    ----------
    wanted
        What the user says; None: nothing.
    """
    if wanted is not None:
        return wanted
    return options.mode is RunMode.DILATED and options.device != "cuda" and not _divides_layers(design)


def check_memory(
    plan_file: PlanFile, design: Design, options: RunOptions, *, together: bool, free_bytes: float | None
) -> None:
    """Refuse a dilated run that does not fit into main memory.

    Parameters
    ----------
    free_bytes
        None: nobody knows, and nothing is refused.

    Raises
    ------
    BadInputError
        It says how much is needed, how much is free, and what needs less.
    """
    needed_bytes = needed_memory_bytes(plan_file, design, options, together=together)
    if options.mode is not RunMode.DILATED or free_bytes is None or needed_bytes <= free_bytes:
        return
    kind = "threads of one process" if together else "processes"
    layers = "stand-ins for the layers" if options.stand_ins else "the model's layers"
    remedies = [
        "leave out --own-processes, so that all ranks share one"
        if options.stand_ins
        else "leave out --real-layers or --layers, so that small stand-ins take their place",
        "close other programs",
    ]
    raise BadInputError(
        f"--mode dilated: {design.layout.world_size} ranks as {kind}, with {layers}, take about "
        f"{bytes_label(needed_bytes)} of memory, but {bytes_label(free_bytes)} are free; {', or '.join(remedies)}"
    )


def needed_memory_bytes(plan_file: PlanFile, design: Design, options: RunOptions, *, together: bool) -> float:
    """Main memory that all ranks take: of the runtime, and of their layers."""
    num_ranks = design.layout.world_size
    runtime_bytes = PROCESS_BYTES + THREAD_BYTES * num_ranks if together else PROCESS_BYTES * (num_ranks + 1)
    return runtime_bytes + (_stand_in_bytes(design) if options.stand_ins else _layer_bytes(plan_file))


def _stand_in_bytes(design: Design) -> float:
    """What autograd keeps of the samples between forward and backward, and the whole batch."""
    stages = design.plan.stages
    kept = sum(stage.warmup_depth * stage.forward_micro_batch * (stage.stop - stage.start + 2) for stage in stages)
    num_samples = 2 * kept * len(design.plan.pipelines) + 4 * design.global_batch
    return float(WIDTH * _NUMBER_BYTES * num_samples)


def _layer_bytes(plan_file: PlanFile) -> float:
    """As planned, but for activations, which are computed in fp32 here."""
    problem, plan = plan_file.problem, plan_file.plan
    costs = CostModel(problem).plan(plan)
    wider = _NUMBER_BYTES / problem.model.precision.num_bytes
    saved_bytes = costs.warmup_depth * costs.saved_bytes + costs.working_bytes
    own_bytes = costs.static_bytes + wider * saved_bytes
    return float(
        sum(len(stage.devices) * own for stage, own in zip(plan.stages, own_bytes.tolist(), strict=True))
    ) * len(plan.pipelines)


def _divides_layers(design: Design) -> bool:
    """Whether a layer is to be shared by several devices, which processes only can do."""
    return any(
        design.chain.layers[index].tensor_parallel is not None
        for stage in design.plan.stages
        if stage.tensor_parallel > 1
        for index in range(stage.start, stage.stop)
    )
