"""A rank of a run through waves as a process of its own: a stage, or a parameter server."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import torch

from stagecut.executor.machine.devices import device_title
from stagecut.executor.ranks import environment
from stagecut.executor.ranks.failures import failure_report
from stagecut.executor.ranks.rank_process import end_rank
from stagecut.executor.ranks.world import World, join_world
from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.waves.loop import WaveObserver, observed, wave_data
from stagecut.executor.run.waves.record import num_waves_of, wave_record
from stagecut.executor.waves.loading import load_waves
from stagecut.executor.waves.setting.layout import WaveLayout
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.wave_run_record import WaveRunRecord
from stagecut.planner.io.files.plan_file import installed_versions
from stagecut.planner.io.files.wave_plan_file import WavePlanFile


def run_wave_rank(
    plan_file: WavePlanFile, options: RunOptions, *, observer: WaveObserver, finish: Callable[[WaveRunRecord], None]
) -> None:
    """Be one rank of a run; a failure is reported and ends the process.

    Parameters
    ----------
    finish
        Called on rank 0 with the record.
    """
    layout = WaveLayout.of(plan_file.plan, plan_file.problem.cluster)
    world = None
    try:
        world = join_world(backend="gloo", device="cpu", timeout_s=options.timeout_s)
        record = _train(plan_file, options, world=world, layout=layout, observer=observer)
        world.leave()
        if record is not None:  # only after leaving, because a rank that dies there fails the run
            finish(record)
    except Exception as fault:
        rank = environment.rank()
        role = layout.roles[rank] if rank < layout.world_size else None
        end_rank(failure_report(fault, role, rank=rank), world, names=layout.names)


def _train(
    plan_file: WavePlanFile, options: RunOptions, *, world: World, layout: WaveLayout, observer: WaveObserver
) -> WaveRunRecord | None:
    """Train, and gather the reports of all ranks: None on all but the first."""
    started, chain = datetime.now(UTC), options.chain(plan_file)
    device, training = stage_device(layout, options), options.training(plan_file)
    rank = load_waves(
        plan_file.plan,
        chain,
        optimizer=training.optimizer,
        autocast=training.autocast,
        seed=training.seed,
        check_finite=training.check_finite,
        problem=plan_file.problem,
        device=device,
        world=world,
        timeout_s=options.timeout_s,
    )
    data = observed(wave_data(plan_file, chain, options), rank.role, observer, wave=plan_file.plan.workers[0].wave)
    report = rank.train(data, num_waves=num_waves_of(options))
    gathered = world.gather(replace(report, spans=()), classes=(WaveReport,))
    if gathered is None:
        return None
    return wave_record(
        plan_file,
        gathered,
        options=options,
        device=device_title(device, torch.get_num_threads()),
        together=False,
        started=started,
        versions={**installed_versions(), "torch": torch.__version__},
    )


def stage_device(layout: WaveLayout, options: RunOptions) -> torch.device:
    """A GPU of this host for each of its stages, or the CPU; servers need none.

    Raises
    ------
    BadInputError
        If GPUs are asked for and this host has too few.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    first = environment.rank() - local_rank
    local = layout.roles[first : first + environment.local_world_size()]
    stages = [role.rank for role in local if role.worker is not None]
    num_gpus = torch.cuda.device_count() if options.device != "cpu" else 0
    if num_gpus < len(stages) and options.device == "cuda":
        raise BadInputError(f"--device cuda: this host has {len(stages)} stages but {num_gpus} GPUs; use --device cpu")
    if num_gpus < len(stages) or environment.rank() not in stages:
        return torch.device("cpu")
    device = torch.device("cuda", stages.index(environment.rank()))
    torch.cuda.set_device(device)
    return device
