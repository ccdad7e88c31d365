"""The outcome of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

import torch

from stagecut.executor.dilated.dilation import Dilation
from stagecut.executor.machine.devices import device_title
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.trace import Span, StepTrace
from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.record import StepTraces, record_of
from stagecut.planner.core.run_record import CheckRecord, DilationRecord, RunRecord
from stagecut.planner.io.files.plan_file import PlanFile, installed_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """A finished run, as rank 0 knows it."""

    record: RunRecord
    typical: tuple[StepTrace, ...]
    """Traces of all ranks for the step whose time is closest to the measured time."""

    @property
    def check(self) -> CheckRecord | None:
        """The comparison with a single process, if one was made."""
        return self.record.check

    @property
    def spans(self) -> tuple[Span, ...]:
        """Spans of the typical step."""
        return tuple(span for trace in self.typical for span in trace.spans)

    @property
    def start_s(self) -> float:
        """When the typical step began."""
        return min(trace.start_s for trace in self.typical)


def outcome_of(
    plan_file: PlanFile,
    steps: Sequence[StepTraces],
    *,
    options: RunOptions,
    pipeline: Pipeline,
    together: bool,
    started: datetime,
    check: CheckRecord | None,
) -> RunOutcome:
    """The record and typical step of a run, from the traces of all ranks in all steps.

    Parameters
    ----------
    pipeline
        That of any rank.
    together
        Whether the ranks were threads of one process.
    """
    record = record_of(
        plan_file,
        steps,
        layout=pipeline.layout,
        mode=options.mode,
        device=device_title(pipeline.device, torch.get_num_threads()),
        started=started,
        versions={**installed_versions(), "torch": torch.__version__},
        warmup=options.warmup,
        check=check,
    )
    if isinstance(pipeline.pace, Dilation):
        late = (max(trace.late_s for trace in steps[i]) / record.steps[i].seconds for i in record.counted_steps)
        dilation = DilationRecord(
            time_scale=pipeline.pace.time_scale,
            stand_ins=options.stand_ins,
            one_process=together,
            late_share=max(0.0, median(late)),
        )
        record = replace(record, dilation=dilation)
    return RunOutcome(record=record, typical=tuple(steps[record.typical_step]))
