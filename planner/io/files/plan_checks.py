"""Consistency checks between the parts of a plan file, apart from the times."""

import math
from collections.abc import Iterator, Mapping

from stagecut.planner.core.cluster import Cluster, Device
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.placement import device_group_of
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, can_slice, warmup_depths
from stagecut.planner.core.share import Share, cluster_share, device_names, shares_of
from stagecut.planner.core.sublot_sizes import is_union
from stagecut.planner.io.documents.complaints import PathStep, shorten
from stagecut.planner.io.documents.tree import Document
from stagecut.planner.io.files.chain_checks import LocatedFault, chain_faults, device_faults
from stagecut.planner.io.files.plan_entry import PlanFileEntry, StageEntry
from stagecut.planner.io.files.sharding_checks import sharding_faults


def check_plan(entry: PlanFileEntry, document: Document, problem: Problem) -> None:
    """Report where a plan contradicts its own inputs, or needs features that this version lacks."""
    for steps, message in _PlanChecks(entry, problem).faults():
        node = document.root.at(*steps) or document.root
        document.complaints.add(node.line, node.where, message)


class _PlanChecks:
    def __init__(self, entry: PlanFileEntry, problem: Problem) -> None:
        self._plan = entry.plan
        self._stages = entry.plan.pipelines[0].stages
        self._num_groups = max(1, len(self._stages) // entry.plan.chunks)
        self._num_predicted = len(entry.predicted.stages)
        self._problem = problem
        self._devices = {device.name for device in problem.cluster.devices()}

    def faults(self) -> Iterator[LocatedFault]:
        """Run every check."""
        if self._problem.job.waves is not None:
            yield ("inputs", "job", "waves"), "must be left out: plan.synchronisation is all-reduce"
        yield from self._batch_faults()
        yield from self._chain_faults()
        yield from self._chunk_faults()
        yield from self._slicing_faults()
        yield from self._warmup_faults()
        yield from self._device_faults()
        yield from self._size_faults()
        yield from self._sharding_faults()
        yield from self._share_faults()
        if self._num_predicted != len(self._stages):
            rule = f"must be one per stage of a pipeline, {len(self._stages)}, got {self._num_predicted}"
            yield ("predicted", "stages"), rule

    def _batch_faults(self) -> Iterator[LocatedFault]:
        """The micro-batches of all pipelines make up the global batch."""
        factors = [self._plan.micro_batch, self._plan.num_microbatches]
        names = "micro_batch x num_microbatches"
        if len(self._plan.pipelines) > 1:
            factors, names = [len(self._plan.pipelines), *factors], f"pipelines x {names}"
        batch = self._problem.job.global_batch
        if math.prod(factors) != batch:
            shown = " x ".join(map(str, factors))
            yield ("plan", "num_microbatches"), f"{names} must be the global batch {batch}, got {shown}"

    def _chain_faults(self) -> Iterator[LocatedFault]:
        """Every layer is in exactly one stage."""
        names = [layer.name for layer in self._problem.model.layers]
        for (index, key), fault in chain_faults(self._stages, names):
            yield _in_stage(index, key), fault

    def _chunk_faults(self) -> Iterator[LocatedFault]:
        """Only under `interleaved` do device groups have several chunks, on the same devices each."""
        chunks, schedule, num_stages = self._plan.chunks, self._plan.schedule, len(self._stages)
        if schedule is not Schedule.INTERLEAVED:
            if chunks > 1:
                yield ("plan", "chunks"), f"must be 1 under schedule {schedule}, got {chunks}"
            return
        if num_stages % chunks:
            yield ("plan", "chunks"), f"must divide the number of stages of a pipeline, {num_stages}, got {chunks}"
            return
        if (count := self._plan.num_microbatches) % self._num_groups:
            rule = f"must give a number of device groups that divides the {count} micro-batches"
            yield ("plan", "chunks"), f"{rule}, got {self._num_groups} groups"
        for index, stage in enumerate(self._stages):
            first = index % self._num_groups
            if stage.devices != self._stages[first].devices:
                yield _in_stage(index, "devices"), f"must be those of stage {first}, which is in the same device group"

    def _slicing_faults(self) -> Iterator[LocatedFault]:
        """Only micro-batches of even size can be halved, and not under `interleaved`."""
        sliced, size, schedule = self._plan.num_sliced, self._plan.micro_batch, self._plan.schedule
        most = self._plan.num_microbatches
        if sliced and not can_slice(schedule, size):
            rule = f"must be 0: micro-batches of {size} under {schedule} cannot be halved, got {sliced}"
            yield ("plan", "num_sliced"), rule
        elif sliced > most:
            yield ("plan", "num_sliced"), f"must be at most {most}, the number of micro-batches, got {sliced}"

    def _warmup_faults(self) -> Iterator[LocatedFault]:
        """A stage that runs fewer forwards ahead than the next one needs would deadlock."""
        most, what = self._plan.num_microbatches, "the number of micro-batches"
        fixed = self._interleaved_depths()
        for index, stage in enumerate(self._stages):
            depth = stage.warmup_depth
            if self._plan.schedule is Schedule.INTERLEAVED:
                if fixed and depth != fixed[index]:
                    yield _in_stage(index, "warmup_depth"), f"must be {fixed[index]}, got {depth}"
            elif self._is_flush:
                forwards = -(-self._plan.micro_batch // stage.forward_micro_batch)
                if depth != forwards:
                    yield _in_stage(index, "warmup_depth"), f"must be {forwards}, the number of forwards, got {depth}"
            elif depth > most:
                yield _in_stage(index, "warmup_depth"), f"must be at most {most}, {what}, got {depth}"
            else:
                most, what = depth, "that of the previous stage"

    def _interleaved_depths(self) -> tuple[int, ...]:
        """Warm-up depths fixed by the interleaved schedule; empty under others, or if its counts do not divide."""
        plan, num_stages = self._plan, len(self._stages)
        divides = num_stages % plan.chunks == 0 and plan.num_microbatches % self._num_groups == 0
        if plan.schedule is not Schedule.INTERLEAVED or not divides:
            return ()
        return warmup_depths(plan.schedule, num_stages, plan.num_microbatches, chunks=plan.chunks)

    def _device_faults(self) -> Iterator[LocatedFault]:
        """Every device exists, and belongs to one device group."""
        named = [
            (_in_stage(index, "devices", slot, pipeline=number), name)
            for number, pipeline in enumerate(self._plan.pipelines)
            for index, stage in enumerate(pipeline.stages[: self._num_groups])
            for slot, name in enumerate(stage.devices)
        ]
        yield from device_faults(named, self._problem.cluster)

    def _size_faults(self) -> Iterator[LocatedFault]:
        """Stages have the plan's micro-batch size, or sublot sizes of their own under a flush."""
        expected = self._plan.micro_batch
        for index, stage in enumerate(self._stages):
            if self._is_flush:
                yield from self._sublot_faults(index, stage)
                continue
            for key in ("forward_micro_batch", "backward_micro_batch"):
                if (size := getattr(stage, key)) != expected:
                    rule = f"must be {expected}, the micro-batch size (others need schedule gpipe and 1 micro-batch)"
                    yield _in_stage(index, key), f"{rule}, got {size}"
            for key in ("forward_message", "backward_message"):
                if getattr(stage, key) is not None:
                    rule = "must be left out (messages of their own size need schedule gpipe and 1 micro-batch)"
                    yield _in_stage(index, key), f"{rule}, got {getattr(stage, key)}"
            if expected % stage.replicas:
                yield _in_stage(index, "replicas"), f"must divide the micro-batch {expected}, got {stage.replicas}"

    @property
    def _is_flush(self) -> bool:
        """Whether one micro-batch holds all samples, so that every process may cut it in its own way."""
        return self._plan.schedule is Schedule.GPIPE and self._plan.num_microbatches == 1

    def _sublot_faults(self, index: int, stage: StageEntry) -> Iterator[LocatedFault]:
        num_samples, forward, backward = self._plan.micro_batch, stage.forward_micro_batch, stage.backward_micro_batch
        for key in ("forward_micro_batch", "backward_micro_batch", "forward_message", "backward_message"):
            size = getattr(stage, key)
            if size is not None and size > num_samples:
                yield _in_stage(index, key), f"must be at most {num_samples}, the samples of a pipeline, got {size}"
        for key, size in (("forward_micro_batch", forward), ("backward_micro_batch", backward)):
            if size % stage.replicas:
                yield _in_stage(index, key), f"must be a multiple of the {stage.replicas} replicas, got {size}"
        if not is_union(num_samples, forward, backward):
            rule = f"must be a multiple of forward_micro_batch, {forward}, or all {num_samples} samples"
            yield _in_stage(index, "backward_micro_batch"), f"{rule}: a backward cannot cut a forward; got {backward}"

    def _sharding_faults(self) -> Iterator[LocatedFault]:
        """Operators are divided along what they have, evenly, over all devices of a replica."""
        layers = self._problem.model.layers
        for index, stage in enumerate(self._stages):
            for steps, fault in sharding_faults(stage, layers):
                yield _in_stage(index, *steps), fault

    def _share_faults(self) -> Iterator[LocatedFault]:
        """Pipelines have equal shares of the cluster, and the same stages on them."""
        splits, number = self._plan.host_splits, len(self._plan.pipelines)
        accepted = [list(share.host_splits) for share in shares_of(self._problem.cluster, number)]
        if splits in accepted:
            share = Share(num_pipelines=number, host_splits=tuple(splits))
            yield from self._group_faults(share)
            for pipeline in range(1, number):
                yield from self._copy_faults(pipeline, share)
            return
        rule = "must be empty for a single pipeline"
        if number > 1:
            ways = " or ".join(map(str, accepted[:10])) or "none"
            rule = f"must divide the cluster into {number} equal shares, accepted: {ways}"
        yield ("plan", "host_splits" if splits else "pipelines"), f"{rule}, got {shorten(splits)}"

    def _group_faults(self, share: Share) -> Iterator[LocatedFault]:
        """Each stage has the devices it needs, in one island or on whole hosts of one class of the share."""
        cluster = cluster_share(self._problem.cluster, share)
        names = device_names(self._problem.cluster, share, 0)
        known = {names[device.name]: device for device in cluster.devices()}
        for index, stage in enumerate(self._stages):
            if fault := self._group_fault(stage, cluster, known):
                yield _in_stage(index, "devices"), fault

    def _group_fault(self, stage: StageEntry, cluster: Cluster, known: Mapping[str, Device]) -> str:
        expected = stage.replicas * stage.tensor_parallel
        if len(stage.devices) != expected:
            return f"must be replicas x tensor_parallel = {expected} devices, got {len(stage.devices)}"
        if not self._devices.issuperset(stage.devices):
            return ""
        foreign = next((name for name in stage.devices if name not in known), None)
        if foreign is not None:
            return f"{shorten(foreign)} is not in the share of the first pipeline"
        try:
            device_group_of(cluster, tuple(stage.devices), known, tensor_parallel=stage.tensor_parallel)
        except BadInputError as error:
            return error.complaints[0]
        return ""

    def _copy_faults(self, number: int, share: Share) -> Iterator[LocatedFault]:
        """Another pipeline repeats the first one on the corresponding devices of its own share."""
        first, own = (device_names(self._problem.cluster, share, pipeline) for pipeline in (0, number))
        renamed = {first[name]: own[name] for name in own}
        stages = self._plan.pipelines[number].stages
        if len(stages) != len(self._stages):
            rule = f"must be as many as in the first pipeline, {len(self._stages)}, got {len(stages)}"
            yield ("plan", "pipelines", number, "stages"), rule
            return
        for index, (stage, model) in enumerate(zip(stages, self._stages, strict=True)):
            expected = model.model_copy(update={"devices": [renamed.get(name, name) for name in model.devices]})
            for key, value in expected:
                if (got := getattr(stage, key)) != value:
                    rule = f"must be {shorten(value)} as in the first pipeline, got {shorten(got)}"
                    yield _in_stage(index, key, pipeline=number), rule


def _in_stage(index: int, *steps: PathStep, pipeline: int = 0) -> tuple[PathStep, ...]:
    return ("plan", "pipelines", pipeline, "stages", index, *steps)
