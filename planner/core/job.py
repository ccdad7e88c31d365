"""What is to be trained, and what the planner may choose."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from stagecut.planner.core.checks import require, require_count, require_distinct, require_non_negative
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.schedule import Schedule, can_slice


class Recompute(StrEnum):
    """Whether stages drop their activations and compute them again."""

    AUTO = "auto"
    """Exactly the stages that would not fit in memory otherwise."""
    NEVER = "never"
    ALWAYS = "always"


AUTO: Final = "auto"
SliceChoice = int | Literal["auto"]
"""How many warm-up micro-batches are halved: that many, or as many as pay."""
ACTION_OVERHEAD_S = 0.0004
"""About what the executor takes for one more action, as `python -m benchmarks.runtime_overhead` measures it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Bytes that each parameter costs in memory."""

    name: str
    weight_bytes: float
    gradient_bytes: float
    state_bytes: float
    """Moments, and the fp32 copy of the weights in mixed precision."""

    def __post_init__(self) -> None:
        for field in ("weight_bytes", "gradient_bytes", "state_bytes"):
            require_non_negative(f"optimizer {self.name!r}", field, getattr(self, field))

    @property
    def total_bytes(self) -> float:
        """Bytes per parameter of everything that stays in memory."""
        return self.weight_bytes + self.gradient_bytes + self.state_bytes


def standard_optimizer(name: str, precision: Precision) -> Optimizer:
    """AdamW or SGD with momentum, as used with that precision.

    Mixed precision keeps an fp32 copy of the weights beside the optimizer's own fp32 numbers:
    2 + 2 + 12 bytes per parameter for AdamW (ZeRO, SC 2020, section 3.1), 2 + 2 + 8 for SGD.

    Raises
    ------
    BadInputError
        For another name.
    """
    moments = {"adamw": 2, "sgd": 1}
    require(name in moments, "job", "optimizer", f"one of {sorted(moments)} or a table of bytes", name)
    copy = 0 if precision is Precision.FP32 else 4
    size = precision.num_bytes
    return Optimizer(name=name, weight_bytes=size, gradient_bytes=size, state_bytes=4.0 * moments[name] + copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The training iteration and the choices left to the planner."""

    global_batch: int
    """Samples per iteration."""
    optimizer: Optimizer
    precision: Precision = Precision.FP16
    micro_batches: tuple[int, ...] = (1, 2, 4, 8)
    """Allowed sizes; those that do not divide the global batch are passed over."""
    schedules: tuple[Schedule, ...] = (Schedule.ONE_F_ONE_B,)
    recompute: Recompute = Recompute.AUTO
    replicas: tuple[int, ...] | None = None
    """Allowed replicas of a stage; None: any number that divides the micro-batch."""
    tensor_parallel: tuple[int, ...] | None = None
    """Allowed numbers of devices that share a replica; None: any power of two that an island can hold."""
    pipelines: tuple[int, ...] | None = None
    """Allowed numbers of identical pipelines; None: any for which the cluster has equal shares."""
    zero1: bool = False
    """Whether replicas and pipelines divide the optimizer state among them (ZeRO-1, SC 2020)."""
    chunks: tuple[int, ...] = (2,)
    """Stages per device group under `interleaved`."""
    slice: SliceChoice = 0
    """Warm-up micro-batches whose forwards are halved (AutoPipe, CLUSTER 2022); `auto`: until one more does not pay."""
    action_overhead_s: float = ACTION_OVERHEAD_S
    """On top of half a forward."""

    def __post_init__(self) -> None:
        require_count("job", "global_batch", self.global_batch)
        require(len(self.micro_batches) > 0, "job", "micro_batches", "not empty", ())
        require(len(self.schedules) > 0, "job", "schedules", "not empty", ())
        for size in self.micro_batches:
            require_count("job", "micro_batches", size)
        require_distinct("job", "micro_batches", self.micro_batches)
        require_distinct("job", "schedules", self.schedules)
        fitting = any(self.global_batch % size == 0 for size in self.micro_batches)
        rule = f"such that one divides the global batch {self.global_batch}"
        require(fitting, "job", "micro_batches", rule, self.micro_batches)
        for field in ("replicas", "tensor_parallel", "pipelines", "chunks"):
            self._check_counts(field)
        rule = f"a whole number of at least 0, or {AUTO!r}"
        sliced = self.slice == AUTO or (isinstance(self.slice, int) and self.slice >= 0)
        require(sliced, "job", "slice", rule, self.slice)
        require_non_negative("job", "action_overhead_s", self.action_overhead_s)
        for degree in self.tensor_parallel or ():
            require(degree & (degree - 1) == 0, "job", "tensor_parallel", "powers of two", self.tensor_parallel)

    def _check_counts(self, field: str) -> None:
        counts: tuple[int, ...] | None = getattr(self, field)
        if counts is None:
            return
        require(len(counts) > 0, "job", field, "not empty", ())
        for count in counts:
            require_count("job", field, count)
        require_distinct("job", field, counts)

    def allows_replicas(self, replicas: int, micro_batch: int) -> bool:
        """Whether a stage may have that many replicas: a micro-batch is split evenly over them."""
        return micro_batch % replicas == 0 and (self.replicas is None or replicas in self.replicas)

    def may_slice(self, schedule: Schedule, micro_batch: int) -> bool:
        """Whether plans of that schedule and size may halve micro-batches, as far as the job goes."""
        return self.slice != 0 and can_slice(schedule, micro_batch)

    def first_num_sliced(self, schedule: Schedule, micro_batch: int, num_microbatches: int) -> int:
        """The sliced warm-up count of such plans as stated; under `auto` 0, from where it is looked for."""
        stated = 0 if self.slice == AUTO else self.slice
        return min(stated, num_microbatches) if self.may_slice(schedule, micro_batch) else 0
