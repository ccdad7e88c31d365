"""Everything of a run that can be checked before a process is started for it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from stagecut.executor.design import Design, Training
from stagecut.executor.measure.devices import usable_cores
from stagecut.executor.measure.free_memory import free_memory_bytes
from stagecut.executor.play.layout import Layout
from stagecut.executor.run.carrier import check_memory, runs_together
from stagecut.executor.run.options import RunOptions
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.io.files.plan_file import PlanFile


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What is known of a run before it starts."""

    layout: Layout
    together: bool
    """Whether the ranks are threads of one process."""


def check_run(plan_file: PlanFile, options: RunOptions, *, one_process: bool | None = None) -> Preflight:
    """Check that this machine can run a plan.

    Parameters
    ----------
    one_process
        Whether the ranks are to be threads of one process; None: as it suits the run.

    Raises
    ------
    BadInputError
        If the model is unknown or another one than was planned, the action lists cannot be played, or
        there are fewer GPUs than devices in the plan, or too little memory for a dilated run.
    """
    design = Design.of(plan_file, options.chain(plan_file), Training())
    layout, num_gpus = design.layout, torch.cuda.device_count()
    together = runs_together(design, options, wanted=one_process)
    check_memory(plan_file, design, options, together=together, free_bytes=free_memory_bytes())
    if options.device == "cuda" and num_gpus < layout.world_size and not together:
        raise BadInputError(
            f"--device cuda: the plan has {layout.world_size} devices, this host has {num_gpus} GPUs; plan for those, "
            "use --device cpu, or start it on several hosts with torchrun"
        )
    return Preflight(layout=layout, together=together)


def notes(preflight: Preflight, options: RunOptions) -> Iterator[str]:
    """What is worth knowing of a run before it starts: how it is carried, and what makes its times mean little."""
    num_ranks, cores = preflight.layout.world_size, usable_cores()
    if options.mode is RunMode.DILATED:
        carrier = "threads of one process" if preflight.together else "a process each"
        layers = "stand-ins for the layers" if options.stand_ins else "the layers themselves"
        yield f"dilated: {num_ranks} ranks as {carrier} on {cores} processor cores, with {layers}"
        return
    on_cpu = options.device == "cpu" or torch.cuda.device_count() < num_ranks
    if on_cpu and not preflight.together and num_ranks > cores:
        yield f"note: {num_ranks} ranks share {cores} processor cores: their times say little about the plan"
