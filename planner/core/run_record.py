"""What was predicted of a training run, and what the clock measured."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.checks import require, require_count, require_non_negative, require_positive
from stagecut.planner.core.schedule import Schedule

MAX_RUN_QUEUE_SHARE = 0.02
"""A step in which a rank was kept from a processor for a larger share of the time is not clean."""
MAX_MEMORY_SLOWDOWN = 1.1
"""Nor is one around which a rank's memory was slower than this many times what it was in its fast quarter of steps."""

MAX_DILATED_ERROR = 0.05
"""Of a dilated run, whose measured time is the planned one but for the runtime."""

Pairs = tuple[tuple[str, str], ...]


class RunMode(StrEnum):
    """What the seconds of a run are."""

    REAL = "real"
    """Those that the devices took."""
    DILATED = "dilated"
    """Actions and messages held to the times of the plan: only schedule, order and runtime are checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """Times and memory of one stage, on each of its devices; predicted, or measured."""

    forward_s: float
    """One micro-batch."""
    backward_s: float
    """One micro-batch, recomputation included."""
    sync_s: float | None = None
    """Gradient synchronisation; None where unknown, as below."""
    update_s: float | None = None
    """Optimizer step."""
    memory_bytes: float | None = None
    """High-water mark."""

    def __post_init__(self) -> None:
        for field in ("forward_s", "backward_s", "sync_s", "update_s", "memory_bytes"):
            require_non_negative("figures of a stage", field, getattr(self, field) or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """One stage of a run; measured figures are those of its average device, of all pipelines."""

    start: int
    stop: int
    """The stage holds the layers [start, stop)."""
    devices: tuple[str, ...]
    """Of the first pipeline."""
    device_type: str
    replicas: int
    tensor_parallel: int
    recompute: bool
    samples_per_replica: float
    """Of one micro-batch."""
    predicted: StageFigures
    measured: StageFigures
    busy_s: float
    """Forwards and backwards of one step."""
    wait_s: float
    """Free, but the inputs of the next action had not come."""
    idle_s: float
    """The rest of the step: synchronisation, optimizer step, runtime; of the device group where stages share one."""

    def __post_init__(self) -> None:
        owner = f"record of stage [{self.start}, {self.stop})"
        require(0 <= self.start < self.stop, owner, "layers", "at least one, from 0", (self.start, self.stop))
        for field in ("replicas", "tensor_parallel"):
            require_count(owner, field, getattr(self, field))
        require_positive(owner, "samples_per_replica", self.samples_per_replica)
        for field in ("busy_s", "wait_s", "idle_s"):
            require_non_negative(owner, field, getattr(self, field))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One training step."""

    seconds: float
    """From the first start to the last end over all ranks."""
    loss: float | None
    """Mean over the global batch; None where that is no number."""
    run_queue_share: float
    """Largest over the ranks: share of the seconds for which it was ready to run but had no processor."""
    memory_slowdown: float = 1.0
    """Largest over the ranks: seconds of a fixed pass over memory around the step, relative to the fast quarter."""
    clean: bool
    """Whether others on the machine took no more processor time and memory bandwidth than the times can bear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """One step compared with the same step of a single process."""

    loss_difference: float
    """Absolute; infinite where it is no number."""
    largest_gradient_difference: float
    """Absolute, over all parameters; infinite where it is no number."""
    tolerance: float
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DilationRecord:
    """How a run was held to the times of its plan."""

    time_scale: float
    """Everything took so many times as long as planned; the times of the record are divided by it."""
    stand_ins: bool
    """Whether layers of next to no work took the place of the model's."""
    one_process: bool
    """Whether the ranks were threads of one process."""
    late_share: float
    """Of a step, for which actions began or ended later than they could have: for want of a processor, mostly."""

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
    cluster: str
    device: str
    """What the ranks ran on, by name."""
    mode: RunMode
    versions: Pairs
    """Of stagecut, python and the libraries, in order of their names."""
    started: str
    """Time in UTC, as 2026-01-31T12:00:00Z."""
    schedule: Schedule
    micro_batch: int
    num_microbatches: int
    """Per pipeline."""
    num_pipelines: int
    global_batch: int
    sequence_length: int | None = None
    """Tokens of one sample, where the model has tokens."""
    predicted_s: float
    """Simulated seconds of one iteration."""
    measured_s: float
    """Median over the clean steps after the warm-up, over all of them where none is clean."""
    contaminated: bool
    """Whether no step was clean: other programs took the processors, and the times tell nothing."""
    warmup: int
    """So many of the first steps are not measured."""
    steps: tuple[StepRecord, ...]
    """All of them, the warm-up first."""
    stages: tuple[StageRecord, ...]
    check: CheckRecord | None = None
    dilation: DilationRecord | None = None
    """None in real runs."""

    def __post_init__(self) -> None:
        for field in ("micro_batch", "num_microbatches", "num_pipelines", "global_batch"):
            require_count("run", field, getattr(self, field))
        require_non_negative("run", "predicted_s", self.predicted_s)
        require_positive("run", "measured_s", self.measured_s)
        require(0 <= self.warmup < len(self.steps), "run", "warmup", "less than the number of steps", self.warmup)
        require(len(self.stages) > 0, "run", "stages", "not empty", ())

    @property
    def counted_steps(self) -> tuple[int, ...]:
        """Indices of the steps that the measured times are medians of."""
        return counted_steps(self.steps, warmup=self.warmup)

    @property
    def typical_step(self) -> int:
        """Index of the counted step whose time is nearest to the measured one."""
        return min(self.counted_steps, key=lambda index: abs(self.steps[index].seconds - self.measured_s))

    @property
    def error(self) -> float | None:
        """By how much of the prediction the iteration took longer."""
        return relative_error(self.predicted_s, self.measured_s)

    @property
    def fell_behind(self) -> bool:
        """Whether a dilated run took much longer than planned because the machine did not keep up with it.

        What one rank is late for adds up along the way with what others are: a quarter of the delay is telling.
        """
        if self.dilation is None or self.error is None or self.error <= MAX_DILATED_ERROR:
            return False
        return self.dilation.late_share >= (1 - self.predicted_s / self.measured_s) / 4

    @property
    def samples_per_s(self) -> float:
        """Throughput."""
        return self.global_batch / self.measured_s

    @property
    def tokens_per_s(self) -> float | None:
        """Throughput, where the model has tokens."""
        return None if self.sequence_length is None else self.samples_per_s * self.sequence_length


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSpread:
    """How far predictions are from measurements, signs left out."""

    count: int
    median: float
    worst: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> "ErrorSpread | None":
        """The spread of these errors; None without any."""
        sizes = [abs(error) for error in errors]
        return cls(count=len(sizes), median=statistics.median(sizes), worst=max(sizes)) if sizes else None


def counted_steps(steps: Sequence[StepRecord], *, warmup: int) -> tuple[int, ...]:
    """Indices of the clean steps after the warm-up; of all steps after it where none is clean."""
    measured = range(warmup, len(steps))
    return tuple(index for index in measured if steps[index].clean) or tuple(measured)


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """By how much of the prediction the measurement is larger; None where one is unknown or nothing was predicted."""
    if predicted is None or measured is None or predicted <= 0:
        return None
    return measured / predicted - 1.0


def accuracy(runs: Sequence[RunRecord]) -> tuple[tuple[RunMode, ErrorSpread], ...]:
    """Errors of the iteration times of runs that are not contaminated, for each mode there is."""
    found = []
    for mode in RunMode:
        errors = [run.error for run in runs if run.mode is mode and not run.contaminated]
        spread = ErrorSpread.of([error for error in errors if error is not None])
        if spread is not None:
            found.append((mode, spread))
    return tuple(found)


def finite_or_none(value: float) -> float | None:
    """The number, None for infinity and what is no number."""
    return value if math.isfinite(value) else None
