"""What the record of a run holds, key by key."""

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
    """Seconds of one micro-batch forward."""
    backward_s: NonNegative
    """Seconds of one micro-batch backward, recomputation included."""
    sync_s: NonNegative | None
    """Seconds of the gradient synchronisation; null where unknown."""
    update_s: NonNegative | None
    """Seconds of the optimizer step; null where unknown."""
    memory_bytes: NonNegative | None
    """High-water mark in bytes; null where unknown."""


class StageRecordEntry(Entry):
    """One stage of a run; measured figures are those of its average device, memory that of the fullest one."""

    start: Index
    """Index of the first layer, from 0."""
    stop: Count
    """Index after the last layer."""
    devices: Annotated[list[Name], Field(min_length=1)]
    """Names of the devices of the first pipeline."""
    device_type: Name
    """Kind of the devices."""
    replicas: Count
    """Copies of the stage in each pipeline."""
    tensor_parallel: Count
    """Devices that share each copy."""
    recompute: bool
    """Whether activations were dropped and computed again in the backward."""
    samples_per_replica: Positive
    """Samples of one micro-batch that each replica computes."""
    predicted: StageFiguresEntry
    """What the plan says."""
    measured: StageFiguresEntry
    """What the clock says: medians over the counted steps."""
    busy_s: NonNegative
    """Seconds of forwards and backwards in one step."""
    wait_s: NonNegative
    """Seconds of one step in which inputs were waited for."""
    idle_s: NonNegative
    """The other seconds of a step: synchronisation, optimizer step, runtime; of all stages that share the devices."""


class StepRecordEntry(Entry):
    """One training step."""

    seconds: NonNegative
    """From the first start to the last end over all ranks."""
    loss: Number | None
    """Mean over the global batch; null where it is no number."""
    run_queue_share: NonNegative
    """Largest over the ranks: share of the time for which a rank was ready to run but had no processor."""
    memory_slowdown: NonNegative = 1.0
    """Largest over the ranks: seconds of a fixed pass over memory around the step, relative to the fast quarter."""
    clean: bool
    """Whether both are small enough for the times to count."""


class CheckRecordEntry(Entry):
    """One step compared with the same step of a single process."""

    loss_difference: NonNegative | None
    """Absolute; null where it is no number."""
    largest_gradient_difference: NonNegative | None
    """Absolute, over all parameters; null where it is no number."""
    tolerance: NonNegative
    """Largest difference that passes."""
    passed: bool
    """Whether it does."""


class DilationEntry(Entry):
    """How a run was held to the times of its plan."""

    time_scale: Positive
    """Everything took so many times as long as planned; the times of this record are divided by it."""
    stand_ins: bool
    """Whether layers of next to no work took the place of the model's."""
    one_process: bool
    """Whether the ranks were threads of one process."""
    late_share: NonNegative
    """Largest over the ranks: share of a step for which its actions began or ended later than they could have."""


class RunFile(FileEntry):
    """One run of a plan: what was predicted, and what was measured."""

    plan_hash: Sha256
    """Of the plan file's tree."""
    profile_hash: Sha256
    """Of the model profile's tree inside the plan file."""
    model: Name
    """Name of the model."""
    cluster: Name
    """Name of the cluster that the plan is for."""
    device: Text
    """What the ranks ran on, by name."""
    mode: Annotated[RunMode, Field(strict=False)]
    """real, or dilated: actions and messages held to the times of the plan."""
    versions: dict[Key, Text]
    """Of stagecut, python and the libraries."""
    started: UtcTime
    """When, in UTC."""
    schedule: Annotated[Schedule, Field(strict=False)]
    """Order of forwards and backwards on every stage."""
    micro_batch: Count
    """Samples of one micro-batch."""
    num_microbatches: Count
    """Micro-batches of one step, per pipeline."""
    num_pipelines: Count
    """Copies of the whole model."""
    global_batch: Count
    """Samples of one step."""
    sequence_length: Count | None
    """Tokens of one sample; null where the model has none."""
    predicted_s: NonNegative
    """Simulated seconds of one iteration."""
    measured_s: Positive
    """Measured seconds of one iteration: the median over the clean steps after the warm-up, over all if none is."""
    error: Number | None
    """measured_s / predicted_s - 1; null where nothing was predicted."""
    contaminated: bool
    """Whether no step was clean."""
    warmup: Index
    """So many of the first steps are not measured."""
    samples_per_s: NonNegative
    """Samples per second: global_batch / measured_s."""
    tokens_per_s: NonNegative | None
    """Tokens per second; null where the model has none."""
    steps: Annotated[list[StepRecordEntry], Field(min_length=1)]
    """All of them, the warm-up first."""
    stages: Annotated[list[StageRecordEntry], Field(min_length=1)]
    """One per stage of a pipeline, in order."""
    check: CheckRecordEntry | None
    """Comparison with a single process; null where none was made."""
    dilation: DilationEntry | None = None
    """Of dilated runs; null in real ones."""
