"""The outcome of a run through waves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import torch

from stagecut.executor.machine.devices import device_title
from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.waves.record import wave_record
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.executor.waves.setting.waits import WaveSpan
from stagecut.planner.core.run_record import CheckRecord
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.virtual_workers.wave_run_record import DroppedWorker, WaveRunRecord
from stagecut.planner.io.files.plan_file import installed_versions
from stagecut.planner.io.files.wave_plan_file import WavePlanFile
from stagecut.planner.report.waves.wave_perfetto import MeasuredSpan
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.timeline import MOST_SHOWN_WAVES


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveOutcome:
    """A finished run, as the rank that answers knows it."""

    record: WaveRunRecord
    measured: tuple[MeasuredSpan, ...]
    """Of all ranks that ran to the end, for the waves of :func:`shown_waves`."""
    waves: range
    """Those."""

    @property
    def check(self) -> CheckRecord | None:
        """The comparison with a single process, if one was made."""
        return self.record.check


def wave_outcome(
    plan_file: WavePlanFile,
    reports: Sequence[WaveReport],
    *,
    options: RunOptions,
    device: torch.device,
    together: bool,
    started: datetime,
    time_scale: float | None = None,
    dropped: Mapping[int, DroppedWorker] | None = None,
    check: CheckRecord | None = None,
) -> WaveOutcome:
    """The record of a run: see :func:`stagecut.executor.run.waves.record.wave_record`."""
    record = wave_record(
        plan_file,
        reports,
        options=options,
        device=device_title(device, torch.get_num_threads()),
        together=together,
        started=started,
        versions={**installed_versions(), "torch": torch.__version__},
        time_scale=time_scale,
        dropped=dropped,
        check=check,
    )
    measured = tuple(span for report in reports for span in _measured(report))
    return WaveOutcome(record=record, measured=measured, waves=shown_waves(options))


def shown_waves(options: RunOptions) -> range:
    """The waves of a trace: the first of those that are measured."""
    return range(options.warmup, options.warmup + min(options.num_steps, MOST_SHOWN_WAVES))


def shown(report: WaveReport, plan: WavePlan, waves: range) -> WaveReport:
    """A report with the spans of some waves of this call of `train`, which begins with wave 0 and minibatch 1."""
    size = 1 if report.worker is None else plan.workers[report.worker].wave
    first = (report.first_minibatch - 1) // size

    def number(span: WaveSpan) -> int:
        return span.number - first * (1 if span.number == span.wave else size)

    spans = (span._replace(wave=span.wave - first, number=number(span)) for span in report.spans)
    transfers = (each._replace(wave=each.wave - first) for each in report.transfers)
    return replace(
        report,
        spans=tuple(span for span in spans if span.wave in waves),
        transfers=tuple(each for each in transfers if each.wave in waves),
    )


def _measured(report: WaveReport) -> Iterator[MeasuredSpan]:
    if report.worker is None or report.stage is None:
        return
    where = report.worker, report.stage
    for kind, _, number, *times_s in report.spans:
        yield MeasuredSpan(*where, "", KINDS.get(kind, kind), number, *times_s)
    for kind, wave, partner, start_s, end_s in report.transfers:
        yield MeasuredSpan(*where, partner, kind, wave, start_s, start_s, end_s)


KINDS = {"F": WaveKind.FORWARD, "B": WaveKind.BACKWARD}
