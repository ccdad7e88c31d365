"""What of parallel degrees a framework lacks, where all stages have the same: :data:`LIMITS`, read like `RULES`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from stagecut.planner.core.frameworks import Framework
from stagecut.planner.core.operators.roles import Degrees
from stagecut.planner.core.operators.strategy import WeightStorage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem

FSDP = frozenset({WeightStorage.GRADIENTS, WeightStorage.WEIGHTS})
"""Storages in which gradients are in parts during the backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeStages:
    """What all stages of a plan have in common."""

    problem: Problem
    degrees: Degrees
    """How the devices of a replica divide the layers of every stage."""
    replicas: int
    num_pipelines: int
    num_groups: int
    """Device groups of a pipeline."""

    @property
    def num_copies(self) -> int:
        """Replicas over all pipelines."""
        return self.replicas * self.num_pipelines

    @property
    def data_parallel(self) -> int:
        """Parts into which the samples of a batch are divided: by replicas, pipelines and inside each replica."""
        return self.num_copies * self.degrees.data

    @property
    def num_state_parts(self) -> int:
        """Devices that share the optimizer state of a weight; a part each."""
        inside = 1 if self.degrees.storage is WeightStorage.REPLICATED else self.degrees.num_summed
        return inside * (self.num_copies if self.problem.job.zero1 else 1)

    @property
    def has_zero1_everywhere(self) -> bool:
        """Whether all devices that sum a gradient share the optimizer state."""
        return self.num_state_parts == self.num_copies * self.degrees.num_summed


def _megatron(stages: AlikeStages) -> Iterator[str]:
    degrees, zero1 = stages.degrees, stages.problem.job.zero1
    if degrees.storage in FSDP and stages.num_groups > 1:
        yield f"{degrees.storage} in parts (Megatron-FSDP) need a single stage"
    if zero1 and stages.num_copies > 1 and (degrees.storage in FSDP or not stages.has_zero1_everywhere):
        shared = f"{degrees.storage} in parts" if degrees.storage in FSDP else f"{degrees.num_summed} whole ones inside"
        yield f"ZeRO-1 over {stages.num_copies} copies of a stage needs it inside each as well, not {shared}"
    if degrees.experts > 1 and stages.problem.job.precision is Precision.FP16:
        yield "it divides experts in bf16 and fp32 only; solve with --precision bf16"
    length = stages.problem.model.sequence_length or 0
    parts = (degrees.tensor if degrees.sequence else 1) * (2 * degrees.context if degrees.context > 1 else 1)
    if length % parts:
        yield f"its tensor and context parallelism divide {length} tokens into {parts} equal parts"


def _torchtitan(stages: AlikeStages) -> Iterator[str]:
    """It stores weights in parts wherever tokens or experts are divided."""
    degrees, copies = stages.degrees, stages.num_copies
    zero1 = stages.problem.job.zero1 and copies > 1
    if zero1 and (not stages.has_zero1_everywhere or degrees.storage in FSDP):
        yield f"ZeRO-1 over {copies} copies of a stage needs it inside each as well; solve with --no-zero1"
    elif (zero1 or degrees.storage is WeightStorage.OPTIMIZER) and stages.num_groups == 1:
        yield "it has ZeRO-1 in pipelines only; solve with --no-zero1, or with a --sharding of fsdp in place of zero1"
    elif stages.num_state_parts == 1 and stages.data_parallel > 1 and max(stages.num_groups, degrees.tensor) > 1:
        whole = f"{stages.data_parallel} copies of whole weights"
        yield f"{whole} exclude pipelines and tensor parallelism; solve with --zero1"
    if stages.num_state_parts == 1 and (degrees.context > 1 or degrees.experts > 1):
        yield f"{degrees} without weights in parts; solve with --sharding that has fsdp"
    if degrees.experts > 1 and degrees.experts % degrees.context:
        yield f"it divides experts over all devices of context parallelism, not {degrees.experts} of {degrees.context}"
    if degrees.tensor > 1 and degrees.experts > 1:
        yield "its experts are not divided by tensor parallelism as well"
    if degrees.tensor > 1 and not degrees.sequence:
        yield "its tensor parallelism divides tokens in between"
    length, parts = stages.problem.model.sequence_length or 0, 2 * degrees.tensor * degrees.context
    if length % parts:
        yield f"it needs a sequence length that {parts} divides, got {length}"


def _deepspeed(stages: AlikeStages) -> Iterator[str]:
    """Its pipeline engine."""
    degrees = stages.degrees
    if degrees.storage in FSDP:
        yield f"its pipeline engine stores no {degrees.storage} in parts (ZeRO-2, ZeRO-3)"
    elif stages.num_state_parts > 1 and not stages.has_zero1_everywhere:
        yield "its ZeRO-1 divides the optimizer state among all data-parallel devices, or none; solve with --zero1"
    for what, degree in (("context", degrees.context), ("expert", degrees.experts)):
        if degree > 1:
            yield f"its pipeline engine has no {what} parallelism, got {degree}"


LIMITS: Mapping[Framework, Callable[[AlikeStages], Iterator[str]]] = {
    Framework.MEGATRON: _megatron,
    Framework.TORCHTITAN: _torchtitan,
    Framework.DEEPSPEED: _deepspeed,
}
"""By framework, of those whose stages are alike: what it lacks, in words."""
