"""What can be checked about a run through waves before a process is started for it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from stagecut.executor.machine.devices import usable_cores
from stagecut.executor.run.options import RunOptions
from stagecut.executor.waves.setting.execution import WaveExecution, WaveTraining
from stagecut.executor.waves.setting.layout import WaveLayout
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.io.files.wave_plan_file import WavePlanFile

NO_CHECK = (
    "--check: virtual workers that train through waves compute with weights of different age, as no single process "
    "does; omit --check"
)
DILATED_PROCESSES = (
    "--mode dilated: plans of virtual workers are dilated as threads of one process; omit --own-processes"
)


@dataclass(frozen=True, kw_only=True)
class WavePreflight:
    """What is known about a run before it starts."""

    layout: WaveLayout
    together: bool
    """Whether the ranks are threads of one process."""


def check_wave_run(plan_file: WavePlanFile, options: RunOptions, *, one_process: bool | None = None) -> WavePreflight:
    """Check that this machine can run a plan of virtual workers.

    Raises
    ------
    BadInputError
        If the model is unknown or not the one that was planned, an option makes no sense, or there are fewer GPUs than
        devices in the plan.
    """
    if options.check:
        raise BadInputError(NO_CHECK)
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
    return WavePreflight(layout=layout, together=together)


def wave_notes(preflight: WavePreflight, options: RunOptions) -> Iterator[str]:
    """What the user should know before a run starts."""
    layout, cores = preflight.layout, usable_cores()
    servers = f" and {len(layout.servers)} parameter servers" if layout.servers else ""
    ranks = f"{layout.world_size - len(layout.servers)} stages{servers}"
    if options.mode is RunMode.DILATED:
        layers = "stand-ins for the layers" if options.stand_ins else "the real layers"
        yield f"dilated: {ranks} as threads of one process on {cores} processor cores, with {layers}"
    elif layout.world_size > cores and options.device != "cuda":
        yield f"note: {ranks} share {cores} processor cores: their times say little about the plan"
