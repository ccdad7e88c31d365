"""A rank of a run through waves as a process of its own: a stage, or a parameter server."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import cast

import torch
import torch.distributed as dist

from stagecut.executor.ranks import environment
from stagecut.executor.ranks.world import World, exit_code_in, join_world
from stagecut.executor.run.one_rank import be_rank
from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.waves.comparison import check_wave
from stagecut.executor.run.waves.dropping import dropped_workers, drops_workers
from stagecut.executor.run.waves.loop import WaveObserver, observed, observed_server, wave_data
from stagecut.executor.run.waves.outcome import WaveOutcome, shown, shown_waves, wave_outcome
from stagecut.executor.run.waves.record import num_waves_of
from stagecut.executor.transport.objects import decoded, encoded
from stagecut.executor.waves.loading import load_waves
from stagecut.executor.waves.setting.layout import WaveLayout
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.executor.waves.setting.waits import Transfer, WaveSpan
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.files.wave_plan_file import WavePlanFile


def run_wave_rank(
    plan_file: WavePlanFile, options: RunOptions, *, observer: WaveObserver, finish: Callable[[WaveOutcome], None]
) -> None:
    """Be one rank of a run; a failure is reported and ends the process.

    Parameters
    ----------
    finish
        Called with the outcome on one rank: the first, or a parameter server if workers may be dropped.
    """
    layout = WaveLayout.of(plan_file.plan, plan_file.problem.cluster)
    be_rank(
        lambda world: _train(plan_file, options, world=world, layout=layout, observer=observer),
        layout=layout,
        join=lambda: join_world(backend="gloo", device="cpu", timeout_s=options.timeout_s),
        finish=finish,
    )


def _train(
    plan_file: WavePlanFile, options: RunOptions, *, world: World, layout: WaveLayout, observer: WaveObserver
) -> WaveOutcome | None:
    """Train, and leave; the outcome on the rank that answers, else None."""
    started, chain = datetime.now(UTC), options.chain(plan_file)
    device, training = stage_device(layout, options), options.training(plan_file)
    check = check_wave(plan_file, options, world=world, device=device) if options.check else None
    drops = drops_workers(options)
    rank = load_waves(
        plan_file.plan,
        chain,
        optimizer=training.optimizer,
        autocast=training.autocast,
        seed=training.seed,
        check_finite=training.check_finite,
        drop_workers=drops,
        problem=plan_file.problem,
        device=device,
        world=world,
        timeout_s=options.timeout_s,
    )
    data, num_waves = wave_data(plan_file, chain, options), num_waves_of(options)
    if not drops:
        data = observed(data, rank.role, observer, wave=plan_file.plan.workers[0].wave)
    elif world.rank == layout.servers[0].rank:
        observed_server(rank.engine, observer, num_waves=num_waves)
    report = shown(rank.train(data, num_waves=num_waves), plan_file.plan, shown_waves(options))
    reports, exit_codes = _survivors(world, report) if drops else (_everyone(world, report), {})
    if reports is None or world.rank != (layout.servers[0].rank if drops else 0):
        return None
    dropped = dropped_workers(layout, reports, exit_codes, num_waves=num_waves, timeout_s=options.timeout_s)
    return wave_outcome(
        plan_file,
        reports,
        options=options,
        device=device,
        together=False,
        started=started,
        dropped=dropped,
        check=check,
    )


CLASSES = (WaveReport, WaveSpan, Transfer)


def _everyone(world: World, report: WaveReport) -> list[WaveReport] | None:
    """The reports of all ranks on the first, and the end of all connections."""
    reports = world.gather(report, classes=CLASSES)
    world.leave()
    return reports


def _survivors(world: World, report: WaveReport) -> tuple[list[WaveReport], dict[int, int]]:
    """The same with the reports of the ranks that are left, on all of them, and the exit codes of the others."""
    answers = world.meet(encoded(report))
    dist.destroy_process_group()
    codes = {rank: code for rank, answer in enumerate(answers) if (code := exit_code_in(answer)) is not None}
    left = (answer for rank, answer in enumerate(answers) if rank not in codes)
    return [cast(WaveReport, decoded(answer, CLASSES)) for answer in left], codes


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
