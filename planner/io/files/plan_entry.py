"""What a plan file holds, key by key."""

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
    """The problem that was solved, whole: the plan can be checked on any machine."""

    profile: ProfileFile
    """The model, as a profile file holds it."""
    cluster: ClusterFile
    """The servers, as a cluster file holds them."""
    job: JobFile
    """The job, as a job file holds it."""


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
    """Names of the devices, server/index: replicas x tensor_parallel of them."""
    replicas: Count
    """Each micro-batch is split evenly over so many copies of the stage."""
    tensor_parallel: Count
    """Devices that share each copy of the stage."""
    recompute: bool
    """Whether activations are dropped and computed again in the backward."""
    forward_micro_batch: Count
    """Samples of one forward, over all replicas."""
    backward_micro_batch: Count
    """Samples of one backward, over all replicas."""
    warmup_depth: Count
    """Forwards before the first backward."""


class PipelineEntry(Entry):
    """One chain of stages that holds the whole model."""

    stages: Annotated[list[StageEntry], Field(min_length=1)]
    """In the order of the layers."""


class PlanEntry(Entry):
    """One training iteration, laid out."""

    schedule: Annotated[Schedule, Field(strict=False)]
    """Order of forwards and backwards on every stage."""
    synchronisation: Literal["all-reduce"]
    """How replicas agree on gradients, at the end of the iteration."""
    micro_batch: Count
    """Samples of one micro-batch."""
    num_microbatches: Count
    """Micro-batches of an iteration, per pipeline."""
    pipelines: Annotated[list[PipelineEntry], Field(min_length=1)]
    """Identical but for the names of their devices."""
    host_splits: list[Count] = Field(default_factory=list)
    """For every server class, into how many parts its hosts are divided among the pipelines; empty for one pipeline."""
    chunks: Count = 1
    """Stages on each device group of a pipeline, more than 1 under the schedule interleaved."""
    num_sliced: Index = 0
    """Sliced warm-up count: the forwards of so many first micro-batches run in halves where a stage warms up."""


class StagePredictionEntry(Entry):
    """What the planner expects of one stage, on each of its devices."""

    forward_s: NonNegative
    """Seconds of one micro-batch forward."""
    backward_s: NonNegative
    """Seconds of one micro-batch backward, recomputation included."""
    transfer_s: NonNegative
    """Seconds of one micro-batch to the next stage, one way; 0 for the last stage."""
    sync_s: NonNegative
    """Seconds of the gradient all-reduce."""
    update_s: NonNegative
    """Seconds of the optimizer step."""
    memory_bytes: NonNegative
    """High-water mark in bytes."""
    limit_bytes: PositiveOrUnlimited
    """Memory of the device in bytes, or the word unlimited."""


class PredictionEntry(Entry):
    """Times and memory that the planner expects."""

    iteration_s: NonNegative
    """Simulated seconds of one iteration."""
    stages: list[StagePredictionEntry]
    """One per stage of a pipeline, in order."""


class CertificateEntry(Entry):
    """How good the plan is, and who says so."""

    status: Literal["optimal", "feasible", "interrupted"]
    """optimal: the gap is within the one asked for."""
    solver: Name
    """The solver that found the plan."""
    objective_s: NonNegative
    """Simulated seconds of one iteration."""
    bound_s: NonNegative | None
    """No plan of the search space takes fewer seconds; null where nothing is proven."""
    gap: NonNegative | None
    """(objective_s - bound_s) / objective_s; null where nothing is proven."""
    seconds: NonNegative | None = None
    """Seconds of the search; null where the file must not depend on the clock."""


class InputHashesEntry(Entry):
    """Hexadecimal SHA-256 of each input as JSON with sorted keys and no white space."""

    profile: Sha256
    """Of inputs.profile."""
    cluster: Sha256
    """Of inputs.cluster."""
    job: Sha256
    """Of inputs.job."""


class ProvenanceEntry(Entry):
    """Where the plan comes from."""

    versions: dict[Key, Text]
    """Versions of stagecut, python and the libraries that decide the result."""
    options: dict[Key, OptionValue]
    """Options of the solver."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]
    """Seed of the solver."""
    input_hashes: InputHashesEntry
    """To notice inputs that were changed by hand."""


class PlanFileEntry(FileEntry):
    """A plan with its problem, its predicted numbers, its certificate and its provenance."""

    inputs: InputsEntry
    """The problem that was solved, whole."""
    plan: PlanEntry
    """What runs where, and in which order."""
    predicted: PredictionEntry
    """Simulated times in seconds, memory in bytes."""
    certificate: CertificateEntry
    """Proven quality of the plan."""
    provenance: ProvenanceEntry
    """Versions, options, seed, and hashes of the inputs."""
