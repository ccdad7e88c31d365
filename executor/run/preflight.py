"""Everything about a run that can be checked before a process is started for it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from stagecut.executor.execution_plan import ExecutionPlan, Training
from stagecut.executor.machine.free_memory import free_memory_bytes
from stagecut.executor.ranks.dispensable import Crews
from stagecut.executor.run.host_memory import check_memory
from stagecut.executor.run.one_rank import Layout
from stagecut.executor.run.options import RunOptions
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.cores import usable_cores
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.io.files.plan_file import PlanFile


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What is known about a run before it starts."""

    layout: Layout
    together: bool
    """Whether the ranks are threads of one process."""
    notes: tuple[str, ...]
    """What the user should know: how it runs, and why its times may mean little."""
    crews: Crews = ()
    """See :func:`stagecut.executor.ranks.launch.launch`."""


def check_run(plan_file: PlanFile, options: RunOptions, *, one_process: bool | None = None) -> Preflight:
    """Check that this machine can run a plan.

    Parameters
    ----------
    one_process
        Whether the ranks should be threads of one process; None: whichever suits the run.

    Raises
    ------
    BadInputError
        If the model is unknown or not the one that was planned, the action lists cannot be played, or there are
        fewer GPUs than devices in the plan, or too little memory for a dilated run.
    """
    if options.drop_workers:
        raise BadInputError("--drop-workers: the plan has no virtual workers, but pipelines that step together")
    execution = ExecutionPlan.of(plan_file, options.chain(plan_file), Training())
    layout, num_gpus = execution.layout, torch.cuda.device_count()
    together = runs_together(execution, options) if one_process is None else one_process
    check_memory(plan_file, execution, options, together=together, free_bytes=free_memory_bytes())
    if options.device == "cuda" and num_gpus < layout.world_size and not together:
        raise BadInputError(
            f"--device cuda: the plan has {layout.world_size} devices, this host has {num_gpus} GPUs; plan for those, "
            "use --device cpu, or start the plan on several hosts with torchrun"
        )
    return Preflight(layout=layout, together=together, notes=tuple(_notes(layout.world_size, together, options)))


def runs_together(execution: ExecutionPlan, options: RunOptions) -> bool:
    """Whether all ranks are threads of one process unless the user decides otherwise.

    Dilated runs are, unless something needs processes: their work is small, and threads take a fiftieth of the memory.
    """
    return options.mode is RunMode.DILATED and options.device != "cuda" and not _has_shared_layers(execution)


def _notes(num_ranks: int, together: bool, options: RunOptions) -> Iterator[str]:
    cores = usable_cores()
    if options.mode is RunMode.DILATED:
        kind = "threads of one process" if together else "separate processes"
        layers = "stand-ins for the layers" if options.stand_ins else "the real layers"
        yield f"dilated: {num_ranks} ranks as {kind} on {cores} processor cores, with {layers}"
        return
    on_cpu = options.device == "cpu" or torch.cuda.device_count() < num_ranks
    if on_cpu and not together and num_ranks > cores:
        yield f"note: {num_ranks} ranks share {cores} processor cores: their times say little about the plan"


def _has_shared_layers(execution: ExecutionPlan) -> bool:
    """Whether some layer is divided over devices, which needs processes."""
    return any(execution.sharded) or any(
        execution.chain.layers[index].tensor_parallel is not None
        for stage in execution.plan.stages
        if stage.tensor_parallel > 1
        for index in range(stage.start, stage.stop)
    )
