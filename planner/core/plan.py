"""A plan: which layers run where, how and in which order."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod

from stagecut.planner.core.messages.checks import require, require_count, require_distinct
from stagecut.planner.core.operators.strategy import StageSharding
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule, can_slice, num_halved
from stagecut.planner.core.share import WHOLE, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Layers [start, stop) on one group of devices."""

    start: int
    """Index of the first layer, from 0."""
    stop: int
    """Index after the last layer."""
    devices: tuple[str, ...]
    """Names (server/index) of the replicas x tensor_parallel devices."""
    replicas: int = 1
    """Copies of the stage, over which each micro-batch is split evenly."""
    tensor_parallel: int = 1
    """Devices that share each copy of the stage."""
    sharding: StageSharding | None = None
    """How they divide its layers; None: by heads, width or vocabulary, and everything between along the tokens."""
    recompute: bool = False
    """Whether activations are dropped and recomputed in the backward."""
    warmup_depth: int
    """Forwards before the first backward."""
    forward_micro_batch: int
    """Samples per forward, over all replicas."""
    backward_micro_batch: int
    """Samples per backward, over all replicas."""
    forward_message: int | None = None
    """Samples per message to the next stage; None: the part of one forward here that one forward there takes."""
    backward_message: int | None = None
    """Samples per message of gradients to the previous stage; None: as for `forward_message`."""

    def __post_init__(self) -> None:
        owner = f"stage [{self.start}, {self.stop})"
        require(0 <= self.start < self.stop, owner, "layers", "at least one, from 0", (self.start, self.stop))
        for field in ("replicas", "tensor_parallel", "warmup_depth", "forward_micro_batch", "backward_micro_batch"):
            require_count(owner, field, getattr(self, field))
        for field in ("forward_message", "backward_message"):
            if getattr(self, field) is not None:
                require_count(owner, field, getattr(self, field))
        expected = self.replicas * self.tensor_parallel
        if self.sharding is not None:
            rule = f"a grid of the {self.tensor_parallel} devices that share a replica"
            require(prod(self.sharding.mesh) == self.tensor_parallel, owner, "mesh", rule, self.sharding.mesh)
            rule = f"as many as the stage has: {self.stop - self.start}"
            require(
                len(self.sharding.layers) == self.stop - self.start,
                owner,
                "sharded layers",
                rule,
                len(self.sharding.layers),
            )
        require(
            len(self.devices) == expected, owner, "devices", f"replicas x tensor_parallel = {expected}", self.devices
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One chain of stages that holds the whole model."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        require(len(self.stages) > 0, "pipeline", "stages", "not empty", ())
        require(self.stages[0].start == 0, "pipeline", "first stage", "from layer 0", self.stages[0].start)
        for before, after in pairwise(self.stages):
            require(before.stop == after.start, "pipeline", "stages", "contiguous", (before.stop, after.start))

    @property
    def num_stages(self) -> int:
        """Length S of the pipeline."""
        return len(self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The layout of one training iteration."""

    schedule: Schedule
    """Order of forwards and backwards on every stage."""
    micro_batch: int
    """Samples per micro-batch."""
    num_microbatches: int
    """Micro-batches per iteration and pipeline."""
    pipelines: tuple[Pipeline, ...]
    """Pipelines, identical except for the names of their devices."""
    share: Share = WHOLE
    """The share of the cluster that each pipeline has."""
    chunks: int = 1
    """Stages per device group of a pipeline: with D groups, stages s, s + D, s + 2 D ... share their devices."""
    num_sliced: int = 0
    """Sliced warm-up count: how many of the first micro-batches run their warm-up forwards in halves."""

    def __post_init__(self) -> None:
        require(len(self.pipelines) > 0, "plan", "pipelines", "not empty", ())
        for field in ("micro_batch", "num_microbatches", "chunks"):
            require_count("plan", field, getattr(self, field))
        rule = f"as many as its share is for: {self.share.num_pipelines}"
        require(len(self.pipelines) == self.share.num_pipelines, "plan", "pipelines", rule, len(self.pipelines))
        for pipeline in self.pipelines:
            self._check_chunks(pipeline)
        if self.num_sliced != 0:
            self._check_slicing()
        firsts = (s for pipeline in self.pipelines for s in pipeline.stages[: pipeline.num_stages // self.chunks])
        require_distinct("plan", "devices", (device for stage in firsts for device in stage.devices))

    def _check_slicing(self) -> None:
        counted = isinstance(self.num_sliced, int) and 0 < self.num_sliced <= self.num_microbatches
        rule = f"from 0 to the number of micro-batches, {self.num_microbatches}"
        require(counted, "plan", "num_sliced", rule, self.num_sliced)
        rule = f"0 with micro-batches of {self.micro_batch} under {self.schedule}"
        require(can_slice(self.schedule, self.micro_batch), "plan", "num_sliced", rule, self.num_sliced)
        sizes = {size for stage in self.stages for size in (stage.forward_micro_batch, stage.backward_micro_batch)}
        rule = f"0 if stages have different micro-batch sizes {sorted(sizes)}"
        require(sizes == {self.micro_batch}, "plan", "num_sliced", rule, self.num_sliced)

    def _check_chunks(self, pipeline: Pipeline) -> None:
        rule = f"a multiple of {self.chunks} chunks"
        require(pipeline.num_stages % self.chunks == 0, "plan", "stages", rule, pipeline.num_stages)
        num_groups = pipeline.num_stages // self.chunks
        for index, stage in enumerate(pipeline.stages):
            expected = pipeline.stages[index % num_groups].devices
            rule = f"those of its device group, {expected}"
            require(stage.devices == expected, f"stage {index}", "devices", rule, stage.devices)

    @property
    def num_samples(self) -> int:
        """Samples that pass through each pipeline."""
        return self.micro_batch * self.num_microbatches

    @property
    def is_unequal(self) -> bool:
        """Whether a process has a sublot size of its own."""
        return any(
            (stage.forward_micro_batch, stage.backward_micro_batch) != (self.micro_batch, self.micro_batch)
            or (stage.forward_message, stage.backward_message) != (None, None)
            for stage in self.stages
        )

    @property
    def num_groups(self) -> int:
        """Device groups of each pipeline."""
        return len(self.stages) // self.chunks

    @property
    def variant(self) -> Variant:
        """The choices made for the plan as a whole."""
        return Variant(
            schedule=self.schedule,
            micro_batch=self.micro_batch,
            num_microbatches=self.num_microbatches,
            share=self.share,
            chunks=self.chunks,
        )

    @property
    def num_halved(self) -> tuple[int, ...]:
        """How many micro-batches each stage of a pipeline forwards in halves."""
        return tuple(
            num_halved(self.num_sliced, depth=stage.warmup_depth, micro_batch=self.micro_batch, replicas=stage.replicas)
            for stage in self.stages
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the first pipeline, which represents all of them."""
        return self.pipelines[0].stages
