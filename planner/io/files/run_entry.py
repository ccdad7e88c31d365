"""The schema of run records."""

from typing import Annotated

from pydantic import Field

from stagecut.planner.core.run_record import RunMode
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.documents.fields import Count, Entry, FileEntry, Index, Key, Name, NonNegative, Positive, Text
from stagecut.planner.io.files.plan_entry import Sha256

Number = Annotated[float, Field(ge=-1e30, le=1e30)]
UtcTime = Annotated[str, Field(max_length=20, pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")]


class StageFiguresEntry(Entry):
    """Times and memory of one stage, on each of its devices."""

    forward_s: NonNegative
    """Seconds per micro-batch, forward."""
    backward_s: NonNegative
    """Seconds per micro-batch, backward, including recomputation."""
    sync_s: NonNegative | None
    """Seconds of the gradient synchronisation; null if unknown."""
    update_s: NonNegative | None
    """Seconds of the optimizer step; null if unknown."""
    memory_bytes: NonNegative | None
    """Peak memory in bytes; null if unknown."""


class StageRecordEntry(Entry):
    """One stage of a run; measured times are averages over its devices, memory is that of the fullest device."""

    start: Index
    """Index of the first layer, from 0."""
    stop: Count
    """Index after the last layer."""
    devices: Annotated[list[Name], Field(min_length=1)]
    """Names of the devices of the first pipeline."""
    device_type: Name
    """Device type."""
    replicas: Count
    """Copies of the stage in each pipeline."""
    tensor_parallel: Count
    """Devices that share each copy."""
    recompute: bool
    """Whether activations were dropped and recomputed in the backward."""
    samples_per_replica: Positive
    """Samples of each micro-batch that one replica computes."""
    predicted: StageFiguresEntry
    """Figures predicted by the plan."""
    measured: StageFiguresEntry
    """Measured figures: medians over the counted steps."""
    busy_s: NonNegative
    """Seconds per step spent in forwards and backwards."""
    wait_s: NonNegative
    """Seconds per step spent waiting for inputs."""
    idle_s: NonNegative
    """Remaining seconds of a step: synchronisation, optimizer, runtime; counted for all stages on the devices."""


class StepRecordEntry(Entry):
    """One training step."""

    seconds: NonNegative
    """Seconds from the first start to the last end over all ranks."""
    loss: Number | None
    """Mean loss over the global batch; null if it is not finite."""
    run_queue_share: NonNegative
    """Largest fraction of the time, over all ranks, that a rank was ready to run but had no processor."""
    memory_slowdown: NonNegative = 1.0
    """Largest slowdown over all ranks of a fixed pass over memory around the step, relative to the fastest quarter."""
    clean: bool
    """Whether both figures are small enough for the times to count."""


class CheckRecordEntry(Entry):
    """One step compared with the same step of a single process."""

    loss_difference: NonNegative | None
    """Absolute difference of the losses; null if it is not finite."""
    largest_gradient_difference: NonNegative | None
    """Largest absolute difference of any gradient; null if it is not finite."""
    tolerance: NonNegative
    """Largest accepted difference."""
    passed: bool
    """Whether both differences are within the tolerance."""


class DilationEntry(Entry):
    """How a run was made to take the times of its plan."""

    time_scale: Positive
    """Factor by which everything was slowed down; the times of this record are divided by it."""
    stand_ins: bool
    """Whether trivial stand-ins replaced the model's layers."""
    one_process: bool
    """Whether the ranks were threads of one process."""
    late_share: NonNegative
    """Largest fraction of a step, over all ranks, by which actions started or ended late."""


class RunFile(FileEntry):
    """One run of a plan: predicted and measured times."""

    plan_hash: Sha256
    """Hash of the plan file's tree."""
    profile_hash: Sha256
    """Hash of the model profile's tree inside the plan file."""
    model: Name
    """Name of the model."""
    cluster: Name
    """Name of the cluster the plan is for."""
    device: Text
    """Name of the hardware the ranks ran on."""
    mode: Annotated[RunMode, Field(strict=False)]
    """real, or dilated: actions and messages made to take the times of the plan."""
    versions: dict[Key, Text]
    """Versions of stagecut, Python and the libraries."""
    started: UtcTime
    """Start time in UTC."""
    schedule: Annotated[Schedule, Field(strict=False)]
    """Order of forwards and backwards on every stage."""
    micro_batch: Count
    """Samples per micro-batch."""
    num_microbatches: Count
    """Micro-batches per step and pipeline."""
    num_pipelines: Count
    """Number of copies of the whole model."""
    global_batch: Count
    """Samples per step."""
    sequence_length: Count | None
    """Tokens per sample; null if the model has none."""
    predicted_s: NonNegative
    """Simulated seconds of one iteration."""
    measured_s: Positive
    """Measured seconds of one iteration: median of the clean steps after the warm-up, or of all if none is clean."""
    error: Number | None
    """measured_s / predicted_s - 1; null if nothing was predicted."""
    contaminated: bool
    """Whether no step was clean."""
    warmup: Index
    """Number of initial steps that are not measured."""
    samples_per_s: NonNegative
    """Samples per second: global_batch / measured_s."""
    tokens_per_s: NonNegative | None
    """Tokens per second; null if the model has none."""
    steps: Annotated[list[StepRecordEntry], Field(min_length=1)]
    """All steps, including the warm-up."""
    stages: Annotated[list[StageRecordEntry], Field(min_length=1)]
    """One per stage of a pipeline, in order."""
    check: CheckRecordEntry | None
    """Comparison with a single process; null if none was made."""
    dilation: DilationEntry | None = None
    """Present in dilated runs; null in real ones."""
