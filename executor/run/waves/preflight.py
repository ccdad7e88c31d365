"""What can be checked about a run through waves before a process is started for it."""

from collections.abc import Iterator

import torch

from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.preflight import Preflight
from stagecut.executor.run.waves.comparison import check_checkable
from stagecut.executor.run.waves.dropping import check_droppable, crews_of
from stagecut.executor.waves.setting.execution import WaveExecution, WaveTraining
from stagecut.executor.waves.setting.layout import WaveLayout
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.cores import usable_cores
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.io.files.wave_plan_file import WavePlanFile

DILATED_PROCESSES = (
    "--mode dilated: plans of virtual workers are dilated as threads of one process; omit --own-processes"
)


def check_wave_run(plan_file: WavePlanFile, options: RunOptions, *, one_process: bool | None = None) -> Preflight:
    """Check that this machine can run a plan of virtual workers.

    Raises
    ------
    BadInputError
        If the model is unknown or not the one that was planned, an option makes no sense, or there are fewer GPUs than
        devices in the plan.
    """
    if options.check:
        check_checkable(plan_file.plan)
    if options.drop_workers:
        check_droppable(plan_file.plan)
    is_dilated = options.mode is RunMode.DILATED
    if is_dilated and one_process is False:
        raise BadInputError(DILATED_PROCESSES)
    chain = options.chain(plan_file)
    execution = WaveExecution.of(plan_file.plan, chain, WaveTraining(), problem=plan_file.problem)
    together = is_dilated if one_process is None else one_process
    layout, num_gpus = execution.layout, torch.cuda.device_count()
    num_devices = layout.world_size - len(layout.servers)
    if options.device == "cuda" and num_gpus < num_devices and not together:
        raise BadInputError(
            f"--device cuda: the plan has {num_devices} devices, this host has {num_gpus} GPUs; use --device cpu, or "
            "start the plan on several hosts with torchrun"
        )
    return Preflight(
        layout=layout,
        together=together,
        notes=tuple(_notes(layout, options)),
        crews=crews_of(layout) if options.drop_workers else (),
    )


def _notes(layout: WaveLayout, options: RunOptions) -> Iterator[str]:
    cores = usable_cores()
    servers = f" and {len(layout.servers)} parameter servers" if layout.servers else ""
    ranks = f"{layout.world_size - len(layout.servers)} stages{servers}"
    if options.mode is RunMode.DILATED:
        layers = "stand-ins for the layers" if options.stand_ins else "the real layers"
        yield f"dilated: {ranks} as threads of one process on {cores} processor cores, with {layers}"
    elif layout.world_size > cores and options.device != "cuda":
        yield f"note: {ranks} share {cores} processor cores: their times say little about the plan"
