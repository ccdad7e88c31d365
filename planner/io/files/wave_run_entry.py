"""The schema of records of runs through waves."""

from typing import Annotated, Literal

from pydantic import Field

from stagecut.planner.core.virtual_workers.wave_run_record import (
    DroppedWorker,
    WaveRunRecord,
    WaveWaits,
    WaveWorkerRecord,
)
from stagecut.planner.io.documents.fields import Entry, FileEntry, Index, Positive, Text
from stagecut.planner.io.documents.mirrors import mirrors
from stagecut.planner.io.files.plan_entry import Sha256
from stagecut.planner.io.files.run_entry import CheckRecordEntry, Number, UtcTime
from stagecut.planner.io.files.wave_plan_entry import Rate


@mirrors(WaveWaits)
class WaveWaitsEntry(Entry):
    pass


@mirrors(DroppedWorker)
class DroppedWorkerEntry(Entry):
    num_waves: Index
    reason: Text


@mirrors(WaveWorkerRecord)
class WaveWorkerEntry(Entry):
    predicted_samples_per_s: Rate
    local_staleness: Index | None
    local_bound: Index | None
    global_staleness: Index | None
    global_bound: Index | None


@mirrors(WaveRunRecord)
class WaveRunFile(FileEntry):
    """One run of a plan of virtual workers: predicted and measured throughput."""

    kind: Literal["waves"]
    """Tells these records from those of plain pipelines."""
    plan_hash: Sha256
    profile_hash: Sha256
    device: Text
    started: UtcTime
    warmup: Index
    predicted_samples_per_s: Rate
    measured_samples_per_s: Positive
    time_scale: Positive | None
    losses: Annotated[list[Number | None], Field(min_length=1)]
    check: CheckRecordEntry | None
    error: Number | None
    """predicted against measured throughput; null if workers were dropped."""
