"""Predicted and measured times of a training run."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.messages.checks import require, require_count, require_non_negative, require_positive
from stagecut.planner.core.schedule import Schedule

MAX_RUN_QUEUE_SHARE = 0.02
"""A step is not clean if a rank waited for a processor for a larger fraction of the time."""
MAX_MEMORY_SLOWDOWN = 1.1
"""A step is not clean if memory was slower by a larger factor than in the rank's fastest quarter of steps."""

MAX_DILATED_ERROR = 0.05
"""Largest error expected of a dilated run, whose time differs from the plan only by the runtime's overhead."""

Pairs = tuple[tuple[str, str], ...]


class RunMode(StrEnum):
    """What the seconds of a run mean."""

    REAL = "real"
    """Seconds taken by the devices."""
    DILATED = "dilated"
    """Actions and messages are made to take the times of the plan: only schedule, order and runtime are checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """Predicted or measured times and memory of one stage, on each of its devices."""

    forward_s: float
    """Seconds per forward of a micro-batch, or of a sublot where the stage has a size of its own."""
    backward_s: float
    """Seconds per backward, including recomputation."""
    sync_s: float | None = None
    """Seconds of the gradient synchronisation; None if unknown."""
    update_s: float | None = None
    """Seconds of the optimizer step; None if unknown."""
    memory_bytes: float | None = None
    """Peak memory in bytes; None if unknown."""

    def __post_init__(self) -> None:
        for field in ("forward_s", "backward_s", "sync_s", "update_s", "memory_bytes"):
            require_non_negative("figures of a stage", field, getattr(self, field) or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """One stage of a run; measured times are averages over its devices in all pipelines."""

    start: int
    """Index of the first layer, from 0."""
    stop: int
    """Index after the last layer."""
    devices: tuple[str, ...]
    """Names of the devices of the first pipeline."""
    device_type: str
    """Device type."""
    replicas: int
    """Copies of the stage in each pipeline."""
    tensor_parallel: int
    """Devices that share each copy."""
    recompute: bool
    """Whether activations were dropped and recomputed in the backward."""
    samples_per_replica: float
    """Samples of each forward that one replica computes."""
    predicted: StageFigures
    """Figures predicted by the plan."""
    measured: StageFigures
    """Measured figures: medians over the counted steps."""
    busy_s: float
    """Seconds per step spent in forwards and backwards."""
    wait_s: float
    """Seconds per step spent waiting for inputs."""
    idle_s: float
    """Remaining seconds of a step: synchronisation, optimizer, runtime; counted for all stages on the devices."""
    samples_per_backward: float | None = None
    """Samples of each backward that one replica computes; None: as many as of a forward."""

    def __post_init__(self) -> None:
        owner = f"record of stage [{self.start}, {self.stop})"
        require(0 <= self.start < self.stop, owner, "layers", "at least one, from 0", (self.start, self.stop))
        for field in ("replicas", "tensor_parallel"):
            require_count(owner, field, getattr(self, field))
        require_positive(owner, "samples_per_replica", self.samples_per_replica)
        if self.samples_per_backward is not None:
            require_positive(owner, "samples_per_backward", self.samples_per_backward)
        for field in ("busy_s", "wait_s", "idle_s"):
            require_non_negative(owner, field, getattr(self, field))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One training step."""

    seconds: float
    """Seconds from the first start to the last end over all ranks."""
    loss: float | None
    """Mean loss over the global batch; None if it is not finite."""
    run_queue_share: float
    """Largest fraction of the time, over all ranks, that a rank was ready to run but had no processor."""
    memory_slowdown: float = 1.0
    """Largest slowdown over all ranks of a fixed pass over memory around the step, relative to the fastest quarter."""
    clean: bool
    """Whether other programs took little enough processor time and memory bandwidth for the times to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """One step compared with the same step of a single process."""

    loss_difference: float = float("inf")
    """Absolute difference of the losses; null in a file if it is not finite."""
    largest_gradient_difference: float = float("inf")
    """Largest absolute difference of any gradient; null in a file if it is not finite."""
    tolerance: float
    """Largest accepted difference."""
    passed: bool
    """Whether both differences are within the tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DilationRecord:
    """How a run was made to take the times of its plan."""

    time_scale: float
    """Factor by which everything was slowed down; the times of the record are divided by it."""
    stand_ins: bool
    """Whether trivial stand-ins replaced the model's layers."""
    one_process: bool
    """Whether the ranks were threads of one process."""
    late_share: float
    """Largest fraction of a step, over all ranks, by which actions started or ended late."""

    def __post_init__(self) -> None:
        require_positive("dilation", "time_scale", self.time_scale)
        require_non_negative("dilation", "late_share", self.late_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of a plan."""

    plan_hash: str
    """SHA-256 of the plan file's tree."""
    profile_hash: str
    """SHA-256 of the model profile's tree inside the plan file."""
    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster the plan is for."""
    device: str
    """Name of the hardware the ranks ran on."""
    mode: RunMode
    """real, or dilated: actions and messages made to take the times of the plan."""
    versions: Pairs
    """Versions of stagecut, Python and the libraries, sorted by name."""
    started: str
    """Start time in UTC, such as 2026-01-31T12:00:00Z."""
    schedule: Schedule
    """Order of forwards and backwards on every stage."""
    micro_batch: int
    """Samples per micro-batch."""
    num_microbatches: int
    """Micro-batches per step and pipeline."""
    num_pipelines: int
    """Number of copies of the whole model."""
    global_batch: int
    """Samples per step."""
    sequence_length: int | None = None
    """Tokens per sample; None if the model has none."""
    predicted_s: float
    """Simulated seconds of one iteration."""
    measured_s: float
    """Measured seconds of one iteration: median of the clean steps after the warm-up, or of all if none is clean."""
    contaminated: bool
    """Whether no step was clean: other programs took the processors, so the times are meaningless."""
    warmup: int
    """Number of initial steps that are not measured."""
    steps: tuple[StepRecord, ...]
    """All steps, including the warm-up."""
    stages: tuple[StageRecord, ...]
    """One per stage of a pipeline, in order."""
    check: CheckRecord | None = None
    """Comparison with a single process; None if none was made."""
    dilation: DilationRecord | None = None
    """Present in dilated runs; None in real ones."""

    def __post_init__(self) -> None:
        for field in ("micro_batch", "num_microbatches", "num_pipelines", "global_batch"):
            require_count("run", field, getattr(self, field))
        require_non_negative("run", "predicted_s", self.predicted_s)
        require_positive("run", "measured_s", self.measured_s)
        require(0 <= self.warmup < len(self.steps), "run", "warmup", "less than the number of steps", self.warmup)
        require(len(self.stages) > 0, "run", "stages", "not empty", ())

    @property
    def counted_steps(self) -> tuple[int, ...]:
        """Indices of the steps whose times the medians are taken over."""
        return counted_steps(self.steps, warmup=self.warmup)

    @property
    def typical_step(self) -> int:
        """Index of the counted step whose time is closest to the measured one."""
        return min(self.counted_steps, key=lambda index: abs(self.steps[index].seconds - self.measured_s))

    @property
    def error(self) -> float | None:
        """Relative error of the predicted iteration time."""
        return relative_error(self.predicted_s, self.measured_s)

    @property
    def fell_behind(self) -> bool:
        """Whether a dilated run took much longer than planned because the machine could not keep up.

        Delays of several ranks add up along the pipeline, so one rank that explains a quarter of the delay is enough.
        """
        if self.dilation is None or self.error is None or self.error <= MAX_DILATED_ERROR:
            return False
        return self.dilation.late_share >= (1 - self.predicted_s / self.measured_s) / 4

    @property
    def samples_per_s(self) -> float:
        """Throughput in samples per second."""
        return self.global_batch / self.measured_s

    @property
    def tokens_per_s(self) -> float | None:
        """Throughput in tokens per second, if the model has tokens."""
        return None if self.sequence_length is None else self.samples_per_s * self.sequence_length


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSpread:
    """Absolute relative errors of predictions."""

    count: int
    median: float
    worst: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> "ErrorSpread | None":
        """Summarise errors; None if there are none."""
        sizes = [abs(error) for error in errors]
        return cls(count=len(sizes), median=statistics.median(sizes), worst=max(sizes)) if sizes else None


def counted_steps(steps: Sequence[StepRecord], *, warmup: int) -> tuple[int, ...]:
    """Indices of the clean steps after the warm-up, or of all steps after it if none is clean."""
    measured = range(warmup, len(steps))
    return tuple(index for index in measured if steps[index].clean) or tuple(measured)


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """The value of measured / predicted - 1; None if either is unknown or nothing was predicted."""
    if predicted is None or measured is None or predicted <= 0:
        return None
    return measured / predicted - 1.0


def accuracy(runs: Sequence[RunRecord]) -> tuple[tuple[RunMode, ErrorSpread], ...]:
    """Errors of predicted iteration times by mode, without contaminated runs."""
    found = []
    for mode in RunMode:
        errors = [run.error for run in runs if run.mode is mode and not run.contaminated]
        spread = ErrorSpread.of([error for error in errors if error is not None])
        if spread is not None:
            found.append((mode, spread))
    return tuple(found)


def finite_or_none(value: float) -> float | None:
    """The number, or None if it is infinite or not a number."""
    return value if math.isfinite(value) else None
