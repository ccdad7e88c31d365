"""Training frameworks, and which of our plans each of them can run: one table, :data:`RULES`."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.precision import Precision
from stagecut.planner.core.schedule import Schedule


class Framework(StrEnum):
    """What a plan is made for."""

    MEGATRON = "megatron"
    TORCHTITAN = "torchtitan"
    DEEPSPEED = "deepspeed"
    EXECUTOR = "executor"


class RankOrder(StrEnum):
    """How a framework numbers the devices of a plan: what varies fastest comes first."""

    STAGES_LAST = "tp-dp-pp"
    """Devices of a replica, then replicas of all pipelines, then stages."""
    COPIES_LAST = "tp-pp-dp"
    """Devices of a replica, then stages, then replicas of all pipelines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRules:
    """What a framework can run; docs/search_space.md has the same in words."""

    name: str
    version: str
    """The version in which this was read."""
    schedules: tuple[Schedule, ...]
    rank_orders: tuple[RankOrder, ...]
    """Numberings of devices that it knows, of which one must give every host contiguous ranks; none: any device can
    have any rank."""
    has_whole_blocks: bool = False
    """Whether stages are whole transformer blocks, the embedding with the first one and the head with the last one."""
    is_alike: bool = True
    """Whether all stages have one number of replicas, one way to divide these and one choice of recomputation, equal
    whole micro-batches and gradients summed after every batch, and talk to their neighbours only."""
    precisions: tuple[Precision, ...] = tuple(Precision)
    has_tied_stages: bool = True
    """Whether stages can share the weights of embedding and head."""
    has_partly_filled_pipelines: bool = True
    """Whether there can be more stages than micro-batches."""
    has_zero1: bool = True
    has_divided_zero1: bool = True
    """Whether ZeRO-1 goes with tensor parallelism."""

    def rank_orders_of(self, experts: int) -> tuple[RankOrder, ...]:
        """Devices that divide experts are counted with data parallelism, so stages have to be slowest."""
        return tuple(own for own in self.rank_orders if experts == 1 or own is RankOrder.STAGES_LAST)


RULES: Mapping[Framework, FrameworkRules] = {
    # One bar and the letters E, t and L of --pipeline-model-parallel-layout cut between whole blocks; stages with
    # nothing but the head have been seen to hang. --use-tp-pp-dp-mapping is the other order of ranks.
    Framework.MEGATRON: FrameworkRules(
        name="Megatron-LM",
        version="megatron-core 0.16.1 and 0.19.2",
        schedules=(Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED),
        rank_orders=(RankOrder.STAGES_LAST, RankOrder.COPIES_LAST),
        has_whole_blocks=True,
    ),
    # Modules are those of its decoders. ZeRO-1, which it has in pipelines only, is left out, and so is eager 1F1B,
    # which torch only plays from a file of actions.
    Framework.TORCHTITAN: FrameworkRules(
        name="torchtitan",
        version="0.2.2 and 0.3.0",
        schedules=(Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED),
        rank_orders=(RankOrder.STAGES_LAST,),
        has_whole_blocks=True,
        precisions=(Precision.BF16, Precision.FP32),
        has_tied_stages=False,
        has_partly_filled_pipelines=False,
        has_zero1=False,
    ),
    # A PipelineModule cuts its list of layers anywhere; PipeModelDataParallelTopology numbers the ranks.
    Framework.DEEPSPEED: FrameworkRules(
        name="DeepSpeed",
        version="0.19.8",
        schedules=(Schedule.ONE_F_ONE_B,),
        rank_orders=(RankOrder.STAGES_LAST,),
    ),
    Framework.EXECUTOR: FrameworkRules(
        name="the executor",
        version="of this package",
        schedules=tuple(Schedule),
        rank_orders=(),
        is_alike=False,
        has_divided_zero1=False,
    ),
}
"""By framework."""
