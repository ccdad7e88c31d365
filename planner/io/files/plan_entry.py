"""The schema of plan files."""

from typing import Annotated, Literal

from pydantic import Field

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
from stagecut.planner.io.files.cluster import ClusterFile
from stagecut.planner.io.files.job import JobFile
from stagecut.planner.io.files.profile import ProfileFile

Sha256 = Annotated[str, Field(min_length=64, max_length=64, pattern="^[0-9a-f]*$")]
OptionValue = bool | int | NonNegative | Text | None


class InputsEntry(Entry):
    """The complete problem that was solved, so that the plan can be checked anywhere."""

    profile: ProfileFile
    """The model, as in a profile file."""
    cluster: ClusterFile
    """The servers, as in a cluster file."""
    job: JobFile
    """The job, as in a job file."""


class StageEntry(Entry):
    """Layers [start, stop) on one group of devices."""

    start: Index
    """Index of the first layer, from 0."""
    stop: Count
    """Index after the last layer."""
    first_layer: Name
    """Name of the first layer."""
    last_layer: Name
    """Name of the last layer."""
    devices: Annotated[list[Name], Field(min_length=1)]
    """Names (server/index) of the replicas x tensor_parallel devices."""
    replicas: Count
    """Copies of the stage, over which each micro-batch is split evenly."""
    tensor_parallel: Count
    """Devices that share each copy of the stage."""
    recompute: bool
    """Whether activations are dropped and recomputed in the backward."""
    forward_micro_batch: Count
    """Samples per forward, over all replicas."""
    backward_micro_batch: Count
    """Samples per backward, over all replicas."""
    warmup_depth: Count
    """Forwards before the first backward."""


class PipelineEntry(Entry):
    """One chain of stages that holds the whole model."""

    stages: Annotated[list[StageEntry], Field(min_length=1)]
    """Stages, in the order of the layers."""


class PlanEntry(Entry):
    """The layout of one training iteration."""

    schedule: Annotated[Schedule, Field(strict=False)]
    """Order of forwards and backwards on every stage."""
    synchronisation: Literal["all-reduce"]
    """How replicas synchronise gradients at the end of the iteration."""
    micro_batch: Count
    """Samples per micro-batch."""
    num_microbatches: Count
    """Micro-batches per iteration and pipeline."""
    pipelines: Annotated[list[PipelineEntry], Field(min_length=1)]
    """Pipelines, identical except for the names of their devices."""
    host_splits: list[Count] = Field(default_factory=list)
    """For each server class, how many groups of pipelines its hosts are divided among; empty for one pipeline."""
    chunks: Count = 1
    """Stages per device group of a pipeline; more than 1 under the interleaved schedule."""
    num_sliced: Index = 0
    """Sliced warm-up count: how many of the first micro-batches run their warm-up forwards in halves."""


class StagePredictionEntry(Entry):
    """Predicted times and memory of one stage, on each of its devices."""

    forward_s: NonNegative
    """Seconds per micro-batch, forward."""
    backward_s: NonNegative
    """Seconds per micro-batch, backward, including recomputation."""
    transfer_s: NonNegative
    """Seconds to send one micro-batch to the next stage, one way; 0 for the last stage."""
    sync_s: NonNegative
    """Seconds of the gradient all-reduce."""
    update_s: NonNegative
    """Seconds of the optimizer step."""
    memory_bytes: NonNegative
    """Peak memory in bytes."""
    limit_bytes: PositiveOrUnlimited
    """Memory of the device in bytes, or the word unlimited."""


class PredictionEntry(Entry):
    """Predicted times and memory."""

    iteration_s: NonNegative
    """Simulated seconds of one iteration."""
    stages: list[StagePredictionEntry]
    """One per stage of a pipeline, in order."""


class CertificateEntry(Entry):
    """How good the plan is proven to be."""

    status: Literal["optimal", "feasible", "interrupted"]
    """optimal means that the gap is within the requested one."""
    solver: Name
    """The solver that found the plan."""
    objective_s: NonNegative
    """Simulated seconds of one iteration."""
    bound_s: NonNegative | None
    """No plan of the search space takes fewer seconds; null if nothing is proven."""
    gap: NonNegative | None
    """(objective_s - bound_s) / objective_s; null if nothing is proven."""
    seconds: NonNegative | None = None
    """Duration of the search in seconds; null if the file must not depend on the clock."""


class InputHashesEntry(Entry):
    """SHA-256 of each input, as JSON with sorted keys and no white space, in hexadecimal."""

    profile: Sha256
    """Hash of inputs.profile."""
    cluster: Sha256
    """Hash of inputs.cluster."""
    job: Sha256
    """Hash of inputs.job."""


class ProvenanceEntry(Entry):
    """Where the plan comes from."""

    versions: dict[Key, Text]
    """Versions of stagecut, Python and the libraries that affect the result."""
    options: dict[Key, OptionValue]
    """Options of the solver."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]
    """Random seed of the solver."""
    input_hashes: InputHashesEntry
    """Hashes that reveal inputs changed by hand."""


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
