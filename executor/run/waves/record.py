"""What a run through waves measured, beside what was predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from statistics import fmean, median

from stagecut.executor.run.options import RunOptions
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.planner.core.run_record import finite_or_none
from stagecut.planner.core.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.wave_run_record import WaveRunRecord, WaveWaits, WaveWorkerRecord
from stagecut.planner.cost.wave_costs import WaveCostModel
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.files.plan_file import input_hashes
from stagecut.planner.io.files.wave_plan_file import WavePlanFile, to_tree
from stagecut.planner.simulator.waves.steady import Waits, steady_state


def num_waves_of(options: RunOptions) -> int:
    """All waves of a run."""
    return options.warmup + options.num_steps + COOL_DOWN


def wave_record(
    plan_file: WavePlanFile,
    reports: Sequence[WaveReport],
    *,
    options: RunOptions,
    device: str,
    together: bool,
    started: datetime,
    versions: Mapping[str, str],
    time_scale: float | None = None,
) -> WaveRunRecord:
    """The record of a run.

    Parameters
    ----------
    reports
        Those of all ranks, each of the whole run.
    device
        Name of what the ranks ran on.
    started
        With its time zone.
    """
    problem, plan = plan_file.problem, plan_file.plan
    steady = steady_state(WaveCostModel(problem).plan(plan))
    own, scale = _by_worker(plan, reports), time_scale or 1.0
    waves_s = [each / scale for each in measured_waves_s(plan, reports, warmup=options.warmup, period=steady.num_waves)]
    workers = zip(plan.workers, own, waves_s, steady.waits, strict=True)
    return WaveRunRecord(
        plan_hash=sha256_of(to_tree(plan_file)),
        profile_hash=input_hashes(problem)["profile"],
        model=problem.model.name,
        cluster=problem.cluster.name,
        device=device,
        mode=options.mode,
        one_process=together,
        versions=tuple(sorted(versions.items())),
        started=started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        samples_per_wave=plan.samples_per_wave,
        num_waves=num_waves_of(options),
        warmup=options.warmup,
        predicted_samples_per_s=steady.samples_per_s,
        measured_samples_per_s=plan.samples_per_wave / max(waves_s),
        time_scale=time_scale,
        losses=_losses(plan.workers, own),
        workers=tuple(
            _worker(worker, each, waits, predicted_s=steady.wave_s, measured_s=wave_s, scale=scale)
            for worker, each, wave_s, waits in workers
        ),
    )


COOL_DOWN = 1
"""Waves at the end that are not measured: the pipelines run empty, so the last wave ends earlier."""


def measured_waves_s(plan: WavePlan, reports: Sequence[WaveReport], *, warmup: int, period: int = 1) -> list[float]:
    """Seconds per wave of each worker, without warm-up and cool-down; the slowest one's is that of all.

    The median over all periods, as other programs stretch some.

    Parameters
    ----------
    period
        Waves after which the prediction repeats itself.
    """
    return [_wave_s(own, warmup=warmup, period=period) for own in _by_worker(plan, reports)]


def _by_worker(plan: WavePlan, reports: Sequence[WaveReport]) -> list[list[WaveReport]]:
    return [[report for report in reports if report.worker == index] for index in range(len(plan.workers))]


def _wave_s(reports: Sequence[WaveReport], *, warmup: int, period: int) -> float:
    """A wave ends when its last stage ends it."""
    ends_s: list[float] = [max(ends) for ends in zip(*(report.wave_ends_s for report in reports), strict=True)]
    marks_s = [min(report.start_s for report in reports), *ends_s[:-COOL_DOWN]][warmup:]
    num_waves = min(period, len(marks_s) - 1)
    return median((b - a) / num_waves for a, b in zip(marks_s, marks_s[num_waves:], strict=False))


def _losses(workers: Sequence[VirtualWorker], own: Sequence[Sequence[WaveReport]]) -> tuple[float | None, ...]:
    """The mean over all samples of each wave."""
    by_worker = [max((report.losses for report in reports), key=len) for reports in own]
    num_samples = sum(worker.samples_per_wave for worker in workers)
    num_waves = len(by_worker[0]) // workers[0].wave
    sums = (
        sum(
            worker.samples_per_wave * fmean(losses[wave * worker.wave : (wave + 1) * worker.wave])
            for worker, losses in zip(workers, by_worker, strict=True)
        )
        for wave in range(num_waves)
    )
    return tuple(finite_or_none(total / num_samples) for total in sums)


def _worker(
    worker: VirtualWorker,
    reports: Sequence[WaveReport],
    predicted: Waits,
    *,
    predicted_s: float,
    measured_s: float,
    scale: float,
) -> WaveWorkerRecord:
    num_waves = len(reports[0].wave_ends_s)
    measured = ((report.gate_s, report.pipeline_s, report.link_s) for report in reports)
    gate_s, pipeline_s, link_s = (sum(each) / num_waves / scale for each in zip(*measured, strict=True))
    predicted_gate_s, predicted_pipeline_s, predicted_link_s = astuple(predicted)
    return WaveWorkerRecord(
        devices=worker.devices,
        samples_per_wave=worker.samples_per_wave,
        predicted_samples_per_s=worker.samples_per_wave / predicted_s,
        measured_samples_per_s=worker.samples_per_wave / measured_s,
        local_staleness=max(report.local_staleness for report in reports),
        local_bound=max(report.local_bound for report in reports),
        global_staleness=max(report.global_staleness for report in reports),
        global_bound=max(report.global_bound for report in reports),
        predicted_waits=WaveWaits(gate_s=predicted_gate_s, pipeline_s=predicted_pipeline_s, link_s=predicted_link_s),
        measured_waits=WaveWaits(gate_s=gate_s, pipeline_s=pipeline_s, link_s=link_s),
    )
