"""Everything of a run that can be checked before a process is started for it."""

from collections.abc import Iterator

import torch

from executor.design import Design, Training
from executor.measure.devices import usable_cores
from executor.play.layout import Layout
from executor.run.options import RunOptions
from planner.core.errors import BadInputError
from planner.core.run_record import RunMode
from planner.io.plan_file import PlanFile


def check_run(plan_file: PlanFile, options: RunOptions) -> Layout:
    """Check that this machine can run a plan; the ranks it is to have.

    Raises
    ------
    BadInputError
        If the model is unknown or another one than was planned, the action lists cannot be played, or
        there are fewer GPUs than devices in the plan.
    """
    layout = Design.of(plan_file, options.chain(plan_file), Training()).layout
    num_gpus = torch.cuda.device_count()
    if options.device == "cuda" and num_gpus < layout.world_size:
        raise BadInputError(
            f"--device cuda: the plan has {layout.world_size} devices, this host has {num_gpus} GPUs; plan for those, "
            "use --device cpu, or start it on several hosts with torchrun"
        )
    return layout


def warnings(layout: Layout, options: RunOptions) -> Iterator[str]:
    """What does not keep a run from working, but its times from meaning much."""
    on_cpu = options.device == "cpu" or torch.cuda.device_count() < layout.world_size
    cores = usable_cores()
    if on_cpu and options.mode is RunMode.REAL and layout.world_size > cores:
        yield f"{layout.world_size} ranks share {cores} processor cores: their times say little about the plan"
