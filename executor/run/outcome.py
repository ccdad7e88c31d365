"""What came of the steps of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import torch

from executor.measure.devices import device_title
from executor.play.layout import Layout
from executor.play.trace import Span, StepTrace
from executor.run.options import RunOptions
from executor.run.record import Step, record_of
from planner.core.run_record import RunRecord
from planner.io.plan_file import PlanFile, installed_versions

Observer = Callable[[int, StepTrace], None]
"""Told of every step of a rank, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run as rank 0 knows it in the end."""

    record: RunRecord
    typical: tuple[StepTrace, ...]
    """Of all ranks, for the step that took about the measured time."""
    overrun_s: float = 0.0
    """In dilated mode, how much longer than planned the work of a rank itself took in a step, at most."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """Of the typical step."""
        return tuple(span for trace in self.typical for span in trace.spans)

    @property
    def start_s(self) -> float:
        """When the typical step began."""
        return min(trace.start_s for trace in self.typical)


def outcome_of(
    plan_file: PlanFile,
    steps: Sequence[Step],
    *,
    options: RunOptions,
    layout: Layout,
    device: torch.device,
    started: datetime,
) -> Outcome:
    """Record and typical step of a run, from the traces of all ranks in all steps."""
    record = record_of(
        plan_file,
        steps,
        layout=layout,
        mode=options.mode,
        device=device_title(device, torch.get_num_threads()),
        started=started,
        versions={**installed_versions(), "torch": torch.__version__},
        warmup=options.warmup,
    )
    return Outcome(record=record, typical=tuple(steps[record.typical_step]))
