"""The training job, and the choices left to the planner."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from stagecut.planner.core.frameworks import RULES, Framework
from stagecut.planner.core.messages.checks import require, require_count, require_distinct, require_non_negative
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.schedule import Schedule, can_slice
from stagecut.planner.core.waves import Allocation, Carrier, LocalStep, ShardPlacement


class Recompute(StrEnum):
    """Whether stages drop activations and recompute them."""

    AUTO = "auto"
    """Exactly the stages that would not fit in memory otherwise."""
    NEVER = "never"
    ALWAYS = "always"


AUTO: Final = "auto"
Number = int | Literal["auto"]
SliceChoice = int | Literal["auto"]
"""How many warm-up micro-batches are halved: a number, or as many as pay off."""
ACTION_OVERHEAD_S = 0.0004
"""Approximate cost of one more action in the executor, measured by `python -m benchmarks.runtime_overhead`."""
DONE_ALIKE = {
    "unequal": "has micro-batches of one size",
    "slice": "does not halve micro-batches",
    "waves": "all-reduces gradients after every batch",
}
"""What frameworks do whose stages are all alike, by the choice that is then left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Memory per parameter, in bytes."""

    name: str
    """Name, for display."""
    weight_bytes: float
    """Bytes per parameter for the weights."""
    gradient_bytes: float
    """Bytes per parameter for the gradients."""
    state_bytes: float
    """Bytes per parameter for the moments and, in mixed precision, the fp32 copy of the weights."""

    def __post_init__(self) -> None:
        for field in ("weight_bytes", "gradient_bytes", "state_bytes"):
            require_non_negative(f"optimizer {self.name!r}", field, getattr(self, field))

    @property
    def total_bytes(self) -> float:
        """Bytes per parameter that stay in memory."""
        return self.weight_bytes + self.gradient_bytes + self.state_bytes


def standard_optimizer(name: str, precision: Precision) -> Optimizer:
    """AdamW or SGD with momentum in the given precision; raises a BadInputError for any other name.

    Mixed precision keeps an fp32 copy of the weights besides the optimizer's own fp32 state:
    2 + 2 + 12 bytes per parameter for AdamW (ZeRO, SC 2020, section 3.1), 2 + 2 + 8 for SGD.
    """
    moments = {"adamw": 2, "sgd": 1}
    require(name in moments, "job", "optimizer", f"one of {sorted(moments)} or a table of bytes", name)
    copy = 0 if precision is Precision.FP32 else 4
    size = precision.num_bytes
    return Optimizer(name=name, weight_bytes=size, gradient_bytes=size, state_bytes=4.0 * moments[name] + copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveChoices:
    """Wave-synchronous parallel training (HetPipe, USENIX ATC 2020), and what of it is left to the planner.

    Minibatches have the job's only micro-batch size.
    """

    clock_distance: int = 0
    """D: how many waves a virtual worker may be ahead of the slowest one."""
    in_flight: Number = AUTO
    """N_m: minibatches of a virtual worker in flight; auto: as many as pay."""
    num_workers: Number = AUTO
    """Number of virtual workers."""
    allocation: Allocation = Allocation.OPTIMAL
    """Devices of the virtual workers: np, ed or hd as in the paper, or the best of all."""
    shards: ShardPlacement = ShardPlacement.SPREAD
    """Layers owned by parameter servers: spread over all hosts, or local where most workers hold them."""
    carrier: Carrier = Carrier.PARAMETER_SERVER
    """Whether parameter servers carry the updates, or a delayed all-reduce."""
    local_step: LocalStep = LocalStep.MINIBATCH
    """Whether a worker updates its weights after each minibatch, or once a wave."""
    proportional: bool = False
    """Whether faster workers make longer waves, in proportion to their speed; otherwise all have N_m minibatches."""

    def __post_init__(self) -> None:
        whole = isinstance(self.clock_distance, int) and self.clock_distance >= 0
        require(whole, "job", "clock_distance", "a whole number of at least 0", self.clock_distance)
        for field in ("in_flight", "num_workers"):
            if getattr(self, field) != AUTO:
                require_count("job", field, getattr(self, field))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The training job, and the choices left to the planner."""

    global_batch: int
    """Samples per iteration."""
    optimizer: Optimizer
    precision: Precision = Precision.FP16
    micro_batches: tuple[int, ...] = (1, 2, 4, 8)
    """Allowed micro-batch sizes in samples; of equal ones, those that do not divide the global batch are ignored."""
    unequal: bool = False
    """Whether every process may have a size of its own, under a flush (lot streaming; UMPIPE, IEEE TPDS 2025)."""
    schedules: tuple[Schedule, ...] = (Schedule.ONE_F_ONE_B,)
    """Allowed pipeline schedules."""
    recompute: Recompute = Recompute.AUTO
    """auto (exactly the stages that would not fit in memory otherwise), never or always."""
    replicas: tuple[int, ...] | None = None
    """Allowed numbers of replicas of a stage; None: any that divides the micro-batch."""
    tensor_parallel: tuple[int, ...] | None = None
    """Allowed tensor-parallel degrees, powers of two; None: any that fit in an island."""
    sharding: tuple[Parallelism, ...] | None = None
    """How the devices of a replica may divide each operator; None: by tensor parallelism alike in the whole stage."""
    pipelines: tuple[int, ...] | None = None
    """Allowed numbers of identical pipelines; None: any that divide the cluster into equal shares."""
    zero1: bool = False
    """Whether the optimizer state is sharded over replicas and pipelines (ZeRO-1)."""
    chunks: tuple[int, ...] = (2,)
    """Stages per device group under the interleaved schedule."""
    slice: SliceChoice = 0
    """Warm-up micro-batches whose forwards are halved (AutoPipe, CLUSTER 2022); `auto`: as many as pay off."""
    action_overhead_s: float = ACTION_OVERHEAD_S
    """Overhead of half a forward in seconds, in addition to its computation: the cost of one more action."""
    waves: WaveChoices | None = None
    """Present if virtual workers train through waves; otherwise gradients are all-reduced once per iteration."""
    framework: Framework | None = None
    """The framework that has to run the plan: megatron, torchtitan, deepspeed or executor; None: no restriction."""

    def __post_init__(self) -> None:
        require_count("job", "global_batch", self.global_batch)
        for field in ("micro_batches", "replicas", "tensor_parallel", "pipelines", "chunks"):
            counts: tuple[int, ...] | None = getattr(self, field)
            if counts is not None:
                require(len(counts) > 0, "job", field, "not empty", ())
                require_distinct("job", field, counts)
            for count in counts or ():
                require_count("job", field, count)
        require(len(self.schedules) > 0, "job", "schedules", "not empty", ())
        require_distinct("job", "schedules", self.schedules)
        own = self.unequal and min(self.micro_batches) <= self.global_batch
        fitting = own or any(self.global_batch % size == 0 for size in self.micro_batches)
        rule = f"such that at least one divides the global batch {self.global_batch}"
        require(fitting, "job", "micro_batches", rule, self.micro_batches)
        rule = f"a whole number of at least 0, or {AUTO!r}"
        sliced = self.slice == AUTO or (isinstance(self.slice, int) and self.slice >= 0)
        require(sliced, "job", "slice", rule, self.slice)
        require_non_negative("job", "action_overhead_s", self.action_overhead_s)
        if self.framework is not None:
            self._check_framework(self.framework)
        if self.waves is not None:
            require(
                len(self.micro_batches) == 1, "job", "micro_batches", "a single size, the minibatch", self.micro_batches
            )
        if self.sharding is not None:
            require(len(self.sharding) > 0, "job", "sharding", "not empty", ())
            require_distinct("job", "sharding", self.sharding)
            rule = "none with unequal micro-batches, halved ones, waves and the interleaved schedule"
            require(self.can_shard, "job", "sharding", rule, ", ".join(self.sharding))
        for degree in self.tensor_parallel or ():
            require(degree & (degree - 1) == 0, "job", "tensor_parallel", "powers of two", self.tensor_parallel)

    def _check_framework(self, framework: Framework) -> None:
        """The choices are among those of the framework."""
        rules = RULES[framework]
        known, rule = (
            set(self.schedules) <= set(rules.schedules),
            f"those of {rules.name}, {', '.join(rules.schedules)}",
        )
        require(known, "job", "schedules", rule, ", ".join(self.schedules))
        rule = f"one of {rules.name}: {', '.join(rules.precisions)}"
        require(self.precision in rules.precisions, "job", "precision", rule, str(self.precision))
        rule = f"left out: {rules.name} has it in pipelines only (--sharding fsdp divides the state anywhere)"
        require(rules.has_zero1 or not self.zero1, "job", "zero1", rule, self.zero1)
        if self.zero1 and not rules.has_divided_zero1:
            rule = f"left out with zero1: {rules.name} divides optimizer states of whole layers only"
            require(self.sharding is None, "job", "sharding", rule, self.sharding)
            require(1 in (self.tensor_parallel or (1,)), "job", "tensor_parallel", f"1: {rule}", self.tensor_parallel)
        if not rules.is_alike:
            return
        for field, what in DONE_ALIKE.items():
            value = getattr(self, field)
            rule = f"left out: {rules.name} {what}"
            require(not value, "job", field, rule, ", ".join(value) if isinstance(value, tuple) else value)

    @property
    def can_shard(self) -> bool:
        """Whether `sharding` can be allowed beside the other choices."""
        alike = not self.unequal and self.slice == 0 and Schedule.INTERLEAVED not in self.schedules
        return alike and self.waves is None

    def allows_replicas(self, replicas: int, micro_batch: int) -> bool:
        """Whether a stage may have that many replicas, which have to divide the micro-batch."""
        return micro_batch % replicas == 0 and (self.replicas is None or replicas in self.replicas)

    def sublot_sizes(self, num_samples: int) -> tuple[int, ...]:
        """The sizes that processes may have under a flush of that many samples, rising."""
        return tuple(sorted(size for size in self.micro_batches if size <= num_samples))

    def may_slice(self, schedule: Schedule, micro_batch: int) -> bool:
        """Whether the job lets plans with that schedule and micro-batch size halve micro-batches."""
        return self.slice != 0 and can_slice(schedule, micro_batch)

    def first_num_sliced(self, schedule: Schedule, micro_batch: int, num_microbatches: int) -> int:
        """The sliced warm-up count that the job states for such plans; 0, the start of the search, under `auto`."""
        stated = 0 if self.slice == AUTO else self.slice
        return min(stated, num_microbatches) if self.may_slice(schedule, micro_batch) else 0
