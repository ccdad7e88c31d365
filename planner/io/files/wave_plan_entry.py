"""The schema of plan files of virtual workers."""

from typing import Annotated, Literal

from pydantic import Field

from stagecut.planner.core.plan import Stage
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep, ShardPlacement
from stagecut.planner.io.documents.fields import Count, Entry, FileEntry, Index, Name, NonNegative, PositiveOrUnlimited
from stagecut.planner.io.documents.mirrors import mirrors
from stagecut.planner.io.files.plan_entry import InputsEntry, ProvenanceEntry
from stagecut.planner.io.files.wave_statements import (
    WaveCertificate,
    WavePrediction,
    WaveStagePrediction,
    WorkerPrediction,
)

Rate = NonNegative | Literal["unlimited"]
"""Unlimited where nothing takes any time."""
FROM_THE_WORKER = ("forward_micro_batch", "backward_micro_batch")
"""Fields of a stage that are the minibatch of its worker."""
UNUSED = ("sharding", "devices", "replicas", "tensor_parallel", "forward_message", "backward_message")
"""Fields of a stage that say nothing where each one is on a single device, with whole minibatches as messages."""


@mirrors(Stage, without=(*FROM_THE_WORKER, *UNUSED))
class WorkerStageEntry(Entry):
    """Layers [start, stop) on one device."""

    start: Index
    stop: Count
    first_layer: Name
    """Name of the first layer."""
    last_layer: Name
    """Name of the last layer."""
    device: Name
    """Name (server/index) of the device."""
    recompute: bool
    warmup_depth: Count


@mirrors(VirtualWorker, without=("stages",))
class VirtualWorkerEntry(Entry):
    stages: Annotated[list[WorkerStageEntry], Field(min_length=1)]
    """Stages, in the order of the layers."""
    minibatch: Count
    in_flight: Count
    wave: Count


@mirrors(WavePlan, without=("workers",))
class WavePlanEntry(Entry):
    synchronisation: Literal["wsp"]
    """Wave-synchronous parallel: how workers exchange their updates."""
    workers: Annotated[list[VirtualWorkerEntry], Field(min_length=1)]
    """Virtual workers."""
    clock_distance: Index
    local_step: Annotated[LocalStep, Field(strict=False)]
    """When a worker updates its own weights: after each minibatch, or once a wave."""
    carrier: Annotated[Carrier, Field(strict=False)]
    """What carries updates between workers."""
    shards: Annotated[ShardPlacement, Field(strict=False)]
    owners: list[Name]


@mirrors(WaveStagePrediction)
class WaveStagePredictionEntry(Entry):
    limit_bytes: PositiveOrUnlimited


@mirrors(WorkerPrediction)
class WorkerPredictionEntry(Entry):
    stages: list[WaveStagePredictionEntry]


@mirrors(WavePrediction)
class WavePredictionEntry(Entry):
    samples_per_s: Rate
    s_local: Index
    s_global: Index
    workers: list[WorkerPredictionEntry]


@mirrors(WaveCertificate)
class WaveCertificateEntry(Entry):
    status: Literal["optimal", "feasible", "interrupted"]
    samples_per_s: Rate
    bound_samples_per_s: NonNegative | None
    gap: NonNegative | None


class WavePlanFileEntry(FileEntry):
    """A plan of virtual workers with its problem, predictions, certificate and provenance."""

    schema_version: Annotated[int, Field(ge=2, le=2)] = Field(alias="schema")
    """Version of the file format: 2."""
    inputs: InputsEntry
    """The complete problem that was solved."""
    plan: WavePlanEntry
    """What runs where, and when workers wait for each other."""
    predicted: WavePredictionEntry
    """Simulated samples per second, times in seconds and memory in bytes."""
    certificate: WaveCertificateEntry
    """Proven quality of the plan."""
    provenance: ProvenanceEntry
    """Versions, options, seed and hashes of the inputs."""
