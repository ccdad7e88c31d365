"""The schema of run records."""

from typing import Annotated

from pydantic import Field

from stagecut.planner.core.run_record import (
    CheckRecord,
    DilationRecord,
    RunRecord,
    StageFigures,
    StageRecord,
    StepRecord,
)
from stagecut.planner.io.documents.fields import Count, Entry, FileEntry, Index, NonNegative, Positive, Text
from stagecut.planner.io.documents.mirrors import mirrors
from stagecut.planner.io.files.plan_entry import Sha256

Number = Annotated[float, Field(ge=-1e30, le=1e30)]
UtcTime = Annotated[str, Field(max_length=20, pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")]


@mirrors(StageFigures)
class StageFiguresEntry(Entry):
    sync_s: NonNegative | None
    update_s: NonNegative | None
    memory_bytes: NonNegative | None


@mirrors(StageRecord)
class StageRecordEntry(Entry):
    start: Index
    samples_per_replica: Positive
    samples_per_backward: Positive | None = None


@mirrors(StepRecord)
class StepRecordEntry(Entry):
    loss: Number | None


@mirrors(CheckRecord)
class CheckRecordEntry(Entry):
    loss_difference: NonNegative | None
    largest_gradient_difference: NonNegative | None


@mirrors(DilationRecord)
class DilationEntry(Entry):
    time_scale: Positive


@mirrors(RunRecord)
class RunFile(FileEntry):
    """One run of a plan: predicted and measured times."""

    plan_hash: Sha256
    profile_hash: Sha256
    device: Text
    started: UtcTime
    sequence_length: Count | None
    measured_s: Positive
    warmup: Index
    check: CheckRecordEntry | None
    error: Number | None
    """measured_s / predicted_s - 1; null if nothing was predicted."""
    samples_per_s: NonNegative
    """Samples per second: global_batch / measured_s."""
    tokens_per_s: NonNegative | None
    """Tokens per second; null if the model has none."""
