"""The schema of plan files."""

from typing import Annotated, Literal

from pydantic import Field

from stagecut.planner.core.plan import Plan, Stage
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.documents.fields import (
    Count,
    Entry,
    FileEntry,
    Index,
    Key,
    Name,
    NonNegative,
    PositiveOrUnlimited,
    Text,
)
from stagecut.planner.io.documents.mirrors import mirrors
from stagecut.planner.io.files.cluster import ClusterFile
from stagecut.planner.io.files.job import JobFile
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, Provenance, StagePrediction
from stagecut.planner.io.files.profile import ProfileFile
from stagecut.planner.io.files.sharding_entry import ShardingEntry

Sha256 = Annotated[str, Field(min_length=64, max_length=64, pattern="^[0-9a-f]*$")]


class InputsEntry(Entry):
    """The complete problem that was solved, so that the plan can be checked anywhere."""

    profile: ProfileFile
    """The model, as in a profile file."""
    cluster: ClusterFile
    """The servers, as in a cluster file."""
    job: JobFile
    """The job, as in a job file."""


@mirrors(Stage)
class StageEntry(Entry):
    start: Index
    stop: Count
    first_layer: Name
    """Name of the first layer."""
    last_layer: Name
    """Name of the last layer."""
    devices: Annotated[list[Name], Field(min_length=1)]
    replicas: Count
    tensor_parallel: Count
    recompute: bool
    warmup_depth: Count
    forward_micro_batch: Count
    backward_micro_batch: Count
    forward_message: Count | None = None
    backward_message: Count | None = None
    sharding: ShardingEntry | None = None


class PipelineEntry(Entry):
    """One chain of stages that holds the whole model."""

    stages: Annotated[list[StageEntry], Field(min_length=1)]
    """Stages, in the order of the layers."""


@mirrors(Plan, without=("share",))
class PlanEntry(Entry):
    schedule: Annotated[Schedule, Field(strict=False)]
    synchronisation: Literal["all-reduce"]
    """How replicas synchronise gradients at the end of the iteration."""
    micro_batch: Count
    num_microbatches: Count
    pipelines: Annotated[list[PipelineEntry], Field(min_length=1)]
    host_splits: list[Count] = Field(default_factory=list)
    """For each server class, how many groups of pipelines its hosts are divided among; empty for one pipeline."""
    chunks: Count = 1
    num_sliced: Index = 0


@mirrors(StagePrediction)
class StagePredictionEntry(Entry):
    limit_bytes: PositiveOrUnlimited


@mirrors(Prediction)
class PredictionEntry(Entry):
    stages: list[StagePredictionEntry]


@mirrors(Certificate)
class CertificateEntry(Entry):
    status: Literal["optimal", "feasible", "interrupted"]
    bound_s: NonNegative | None
    gap: NonNegative | None


class InputHashesEntry(Entry):
    """SHA-256 of each input, as JSON with sorted keys and no white space, in hexadecimal."""

    profile: Sha256
    """Hash of inputs.profile."""
    cluster: Sha256
    """Hash of inputs.cluster."""
    job: Sha256
    """Hash of inputs.job."""


@mirrors(Provenance)
class ProvenanceEntry(Entry):
    options: dict[Key, bool | int | NonNegative | Text | None]
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]
    input_hashes: InputHashesEntry


class PlanFileEntry(FileEntry):
    """A plan with its problem, predictions, certificate and provenance."""

    inputs: InputsEntry
    """The complete problem that was solved."""
    plan: PlanEntry
    """What runs where and in which order."""
    predicted: PredictionEntry
    """Simulated times in seconds and memory in bytes."""
    certificate: CertificateEntry
    """Proven quality of the plan."""
    provenance: ProvenanceEntry
    """Versions, options, seed and hashes of the inputs."""
