"""What a run through waves measured, beside what was predicted."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean, median
from typing import Any

from stagecut.executor.run.options import RunOptions
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.planner.core.run_record import CheckRecord, finite_or_none
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.virtual_workers.wave_run_record import (
    DroppedWorker,
    WaveRunRecord,
    WaveWaits,
    WaveWorkerRecord,
)
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
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
    dropped: Mapping[int, DroppedWorker] | None = None,
    check: CheckRecord | None = None,
) -> WaveRunRecord:
    """The record of a run.

    Parameters
    ----------
    reports
        Those of all ranks of workers that trained to the end, each of the whole run.
    device
        Name of what the ranks ran on.
    started
        With its time zone.
    dropped
        Workers that did not.
    """
    problem, plan = plan_file.problem, plan_file.plan
    steady, lost = steady_state(WaveCostModel(problem).plan(plan)), dropped or {}
    own, waves_s = _by_worker(plan, reports, without=lost), {}
    for index, reports_of in own.items():
        wave_s = _wave_s(reports_of, warmup=options.warmup, period=steady.num_waves)
        waves_s[index] = wave_s / (time_scale or 1.0)
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
        measured_samples_per_s=sum(plan.workers[index].samples_per_wave for index in own) / max(waves_s.values()),
        time_scale=time_scale,
        losses=losses_of(plan, reports, without=lost),
        workers=tuple(
            replace(
                _predicted(worker, waits, wave_s=steady.wave_s),
                **_measured(worker, own[index], waves_s[index], scale=time_scale or 1.0)
                if index in own
                else {"dropped": lost[index]},
            )
            for index, (worker, waits) in enumerate(zip(plan.workers, steady.waits, strict=True))
        ),
        check=check,
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
    own = _by_worker(plan, reports)
    return [_wave_s(each, warmup=warmup, period=period) for each in own.values()]


def _by_worker(
    plan: WavePlan, reports: Sequence[WaveReport], *, without: Collection[int] = ()
) -> dict[int, list[WaveReport]]:
    workers = (index for index in range(len(plan.workers)) if index not in without)
    return {index: [report for report in reports if report.worker == index] for index in workers}


def _wave_s(reports: Sequence[WaveReport], *, warmup: int, period: int) -> float:
    """A wave ends when its last stage ends it."""
    ends_s: list[float] = [max(ends) for ends in zip(*(report.wave_ends_s for report in reports), strict=True)]
    marks_s = [min(report.start_s for report in reports), *ends_s[:-COOL_DOWN]][warmup:]
    num_waves = min(period, len(marks_s) - 1)
    return median((b - a) / num_waves for a, b in zip(marks_s, marks_s[num_waves:], strict=False))


def losses_of(
    plan: WavePlan, reports: Sequence[WaveReport], *, without: Collection[int] = ()
) -> tuple[float | None, ...]:
    """The mean over all samples of each wave."""
    own = {
        index: max((each.losses for each in found), key=len)
        for index, found in _by_worker(plan, reports, without=without).items()
    }
    workers = {index: plan.workers[index] for index in own}
    num_samples = sum(worker.samples_per_wave for worker in workers.values())
    num_waves = min(len(losses) // workers[index].wave for index, losses in own.items())
    sums = (
        sum(
            worker.samples_per_wave * fmean(own[index][wave * worker.wave : (wave + 1) * worker.wave])
            for index, worker in workers.items()
        )
        for wave in range(num_waves)
    )
    return tuple(finite_or_none(total / num_samples) for total in sums)


def _predicted(worker: VirtualWorker, waits: Waits, *, wave_s: float) -> WaveWorkerRecord:
    """What is known before a run."""
    return WaveWorkerRecord(
        devices=worker.devices,
        samples_per_wave=worker.samples_per_wave,
        predicted_samples_per_s=worker.samples_per_wave / wave_s,
        predicted_waits=WaveWaits(gate_s=waits.gate_s, pipeline_s=waits.pipeline_s, link_s=waits.link_s),
    )


def _measured(worker: VirtualWorker, reports: Sequence[WaveReport], wave_s: float, *, scale: float) -> dict[str, Any]:
    """The fields of a worker's record that its stages have measured."""
    num_waves = len(reports[0].wave_ends_s)
    waits = ((report.gate_s, report.pipeline_s, report.link_s) for report in reports)
    gate_s, pipeline_s, link_s = (sum(each) / num_waves / scale for each in zip(*waits, strict=True))
    largest = ("local_staleness", "local_bound", "global_staleness", "global_bound")
    return {
        **{name: max(getattr(report, name) for report in reports) for name in largest},
        "measured_samples_per_s": worker.samples_per_wave / wave_s,
        "measured_waits": WaveWaits(gate_s=gate_s, pipeline_s=pipeline_s, link_s=link_s),
    }
