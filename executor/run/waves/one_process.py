"""All ranks of a run through waves as threads of this process, which share one device."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import torch

from stagecut.executor.dilated.wave_dilation import WaveDilation
from stagecut.executor.dilated.wave_time_scale import find_wave_time_scale
from stagecut.executor.machine.devices import numbered
from stagecut.executor.run.one_rank import failures_of
from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.waves.comparison import check_wave_team
from stagecut.executor.run.waves.loop import WaveObserver, observed, wave_data
from stagecut.executor.run.waves.outcome import WaveOutcome, shown, shown_waves, wave_outcome
from stagecut.executor.run.waves.record import num_waves_of
from stagecut.executor.waves.setting.data import WaveData
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.executor.waves.stage_worker import StageWorker
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.io.files.wave_plan_file import WavePlanFile


def run_waves_together(
    plan_file: WavePlanFile,
    options: RunOptions,
    *,
    observer: WaveObserver,
    scaled: Callable[[float], None] = lambda _: None,
) -> WaveOutcome:
    """Train on one device with a thread for each stage.

    Parameters
    ----------
    scaled
        Called with the time scale of a dilated run.

    Raises
    ------
    StagecutError
        If a stage fails; the message says which.
    """
    started, chain, pace = datetime.now(UTC), options.chain(plan_file), None
    if options.mode is RunMode.DILATED:
        torch.set_num_threads(1)
        pace = WaveDilation(WaveCostModel(plan_file.problem).plan(plan_file.plan), timeout_s=options.timeout_s)
    device = numbered(torch.device("cuda" if options.device == "cuda" else "cpu"))
    check = check_wave_team(plan_file, options, device=device) if options.check else None
    own = options.training(plan_file)
    training = WaveTraining(
        optimizer=own.optimizer, autocast=own.autocast, seed=own.seed, check_finite=own.check_finite
    )
    team = WaveTeam(
        plan_file.plan,
        chain,
        training,
        problem=plan_file.problem,
        device=device,
        pace=pace.pace if pace else None,
        channel=pace.channel if pace else None,
    )
    data, scale = wave_data(plan_file, chain, options), None
    if pace is not None:
        scale = options.time_scale or find_wave_time_scale(team, data, pace=pace)
        pace.time_scale = scale
        scaled(scale)
    reports = _train(team, data, options, observer=observer)
    return wave_outcome(
        plan_file,
        [shown(report, plan_file.plan, shown_waves(options)) for report in reports],
        options=options,
        device=device,
        together=True,
        started=started,
        time_scale=scale,
        check=check,
    )


def _train(team: WaveTeam, data: WaveData, options: RunOptions, *, observer: WaveObserver) -> list[WaveReport]:
    layout, num_waves = team.execution.layout, num_waves_of(options)
    wave = team.execution.plan.workers[0].wave
    first = team.workers[0].num_waves  # a dilated run has trained to find its time scale

    def be_rank(worker: StageWorker) -> WaveReport:
        with failures_of(worker.role, layout, timeout_s=options.timeout_s):
            own = observed(data, worker.role, partial(_from, first, observer), wave=wave)
            return worker.train(own, num_waves=num_waves)

    return team.each(be_rank)


def _from(first: int, observer: WaveObserver, wave: int) -> None:
    observer(wave - first)
