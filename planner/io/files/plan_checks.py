"""Consistency checks between the parts of a plan file, apart from the times."""

from collections.abc import Iterator, Mapping

from stagecut.planner.core.cluster import Cluster, Device
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.placement import hosting_of
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, can_slice, warmup_depths
from stagecut.planner.core.share import Share, cluster_share, device_names, shares_of
from stagecut.planner.io.documents.complaints import Step, nearest, shorten
from stagecut.planner.io.documents.tree import Document
from stagecut.planner.io.files.plan_entry import PlanFileEntry, StageEntry


class PlanChecks:
    """Reports where a plan contradicts its own inputs, or needs features that this version lacks."""

    def __init__(self, entry: PlanFileEntry, document: Document, problem: Problem) -> None:
        self._plan = entry.plan
        self._stages = entry.plan.pipelines[0].stages
        self._num_predicted = len(entry.predicted.stages)
        self._document = document
        self._problem = problem
        self._devices = {device.name for device in problem.cluster.devices()}

    def run(self) -> None:
        """Run every check."""
        self._check_batch()
        self._check_chain()
        self._check_chunks()
        self._check_slicing()
        self._check_warmup()
        self._check_devices()
        for index, stage in enumerate(self._stages):
            self._check_sizes(index, stage)
        share = self._share()
        if share is not None:
            self._check_groups(share)
            for number in range(1, share.num_pipelines):
                self._check_copy(number, share)
        if self._num_predicted != len(self._stages):
            rule = f"must be one per stage of a pipeline, {len(self._stages)}, got {self._num_predicted}"
            self._complain(rule, "predicted", "stages")

    def _share(self) -> Share | None:
        """Each pipeline's share of the cluster; None, with a complaint, if the shares are not equal."""
        cluster, number = self._problem.cluster, len(self._plan.pipelines)
        accepted = [list(share.host_splits) for share in shares_of(cluster, number)]
        if self._plan.host_splits in accepted:
            return Share(num_pipelines=number, host_splits=tuple(self._plan.host_splits))
        rule = "must be empty for a single pipeline"
        if number > 1:
            ways = " or ".join(map(str, accepted[:10])) or "none"
            rule = f"must divide the cluster into {number} equal shares, accepted: {ways}"
        place = "host_splits" if self._plan.host_splits else "pipelines"
        self._complain(f"{rule}, got {shorten(self._plan.host_splits)}", "plan", place)
        return None

    def _check_batch(self) -> None:
        """The micro-batches of all pipelines make up the global batch."""
        factors = [self._plan.micro_batch, self._plan.num_microbatches]
        names = "micro_batch x num_microbatches"
        if len(self._plan.pipelines) > 1:
            factors, names = [len(self._plan.pipelines), *factors], f"pipelines x {names}"
        product = 1
        for factor in factors:
            product *= factor
        if product != self._problem.job.global_batch:
            shown = " x ".join(map(str, factors))
            rule = f"{names} must be the global batch {self._problem.job.global_batch}, got {shown}"
            self._complain(rule, "plan", "num_microbatches")

    def _check_chain(self) -> None:
        """Every layer is in exactly one stage, in order, and layer names match the profile."""
        names = [layer.name for layer in self._problem.model.layers]
        start = 0
        for index, stage in enumerate(self._stages):
            if stage.start != start:
                self._complain_of_stage(f"must be {start}, got {stage.start}", index, "start")
            if not stage.start < stage.stop <= len(names):
                rule = f"must be above start and at most {len(names)}, got {stage.stop}"
                return self._complain_of_stage(rule, index, "stop")
            self._check_layer_name(index, "first_layer", stage.first_layer, names[stage.start])
            self._check_layer_name(index, "last_layer", stage.last_layer, names[stage.stop - 1])
            start = stage.stop
        if start != len(names):
            rule = f"must be {len(names)}, the number of layers, got {start}"
            self._complain_of_stage(rule, len(self._stages) - 1, "stop")
        return None

    def _check_layer_name(self, index: int, key: str, name: str, wanted: str) -> None:
        if name != wanted:
            self._complain_of_stage(
                f"must be {shorten(wanted)} according to start and stop, got {shorten(name)}", index, key
            )

    def _check_chunks(self) -> None:
        """Only under `interleaved` do device groups have several chunks, on the same devices each."""
        chunks, schedule, num_stages = self._plan.chunks, self._plan.schedule, len(self._stages)
        if schedule is not Schedule.INTERLEAVED:
            if chunks > 1:
                self._complain(f"must be 1 under schedule {schedule}, got {chunks}", "plan", "chunks")
            return
        if num_stages % chunks:
            rule = f"must divide the number of stages of a pipeline, {num_stages}, got {chunks}"
            self._complain(rule, "plan", "chunks")
            return
        if self._plan.num_microbatches % self._num_groups:
            rule = f"must give a number of device groups that divides the {self._plan.num_microbatches} micro-batches"
            self._complain(f"{rule}, got {self._num_groups} groups", "plan", "chunks")
        for index, stage in enumerate(self._stages):
            first = index % self._num_groups
            if stage.devices != self._stages[first].devices:
                rule = f"must be those of stage {first}, which is in the same device group"
                self._complain_of_stage(rule, index, "devices")

    def _check_slicing(self) -> None:
        """Only micro-batches of even size can be halved, and not under `interleaved`."""
        sliced, size, schedule = self._plan.num_sliced, self._plan.micro_batch, self._plan.schedule
        if sliced and not can_slice(schedule, size):
            rule = f"must be 0: micro-batches of {size} under {schedule} cannot be halved, got {sliced}"
            self._complain(rule, "plan", "num_sliced")
        elif sliced > self._plan.num_microbatches:
            rule = f"must be at most {self._plan.num_microbatches}, the number of micro-batches, got {sliced}"
            self._complain(rule, "plan", "num_sliced")

    @property
    def _num_groups(self) -> int:
        """Device groups per pipeline."""
        return max(1, len(self._stages) // self._plan.chunks)

    def _check_warmup(self) -> None:
        """A stage that runs fewer forwards ahead than the next one needs would deadlock."""
        if self._plan.schedule is Schedule.INTERLEAVED:
            return self._check_interleaved_warmup()
        most, what = self._plan.num_microbatches, "the number of micro-batches"
        for index, stage in enumerate(self._stages):
            if stage.warmup_depth > most:
                rule = f"must be at most {most}, {what}, got {stage.warmup_depth}"
                self._complain_of_stage(rule, index, "warmup_depth")
            else:
                most, what = stage.warmup_depth, "that of the previous stage"
        return None

    def _check_interleaved_warmup(self) -> None:
        """The interleaved schedule fixes every warm-up depth."""
        chunks, num_microbatches = self._plan.chunks, self._plan.num_microbatches
        if len(self._stages) % chunks or num_microbatches % self._num_groups:
            return
        depths = warmup_depths(self._plan.schedule, len(self._stages), num_microbatches, chunks=chunks)
        for index, (stage, depth) in enumerate(zip(self._stages, depths, strict=True)):
            if stage.warmup_depth != depth:
                self._complain_of_stage(f"must be {depth}, got {stage.warmup_depth}", index, "warmup_depth")

    def _check_devices(self) -> None:
        """Every device exists, and belongs to one device group."""
        taken: set[str] = set()
        for number, pipeline in enumerate(self._plan.pipelines):
            for index, stage in enumerate(pipeline.stages[: self._num_groups]):
                for slot, name in enumerate(stage.devices):
                    fault = f"{shorten(name)} is used twice" if name in taken else ""
                    if name not in self._devices:
                        cluster = shorten(self._problem.cluster.name)
                        fault = f"{shorten(name)} is not a device of cluster {cluster}{nearest(name, self._devices)}"
                    if fault:
                        self._complain_of_stage(fault, index, "devices", slot, pipeline=number)
                    taken.add(name)

    def _check_sizes(self, index: int, stage: StageEntry) -> None:
        """Micro-batch sizes are those that this version can simulate."""
        for key in ("forward_micro_batch", "backward_micro_batch"):
            size, wanted = getattr(stage, key), self._plan.micro_batch
            if size != wanted:
                rule = f"must be the micro-batch size {wanted}, since sizes per stage are not supported yet, got {size}"
                self._complain_of_stage(rule, index, key)
        if self._plan.micro_batch % stage.replicas:
            rule = f"must divide the micro-batch {self._plan.micro_batch}, got {stage.replicas}"
            self._complain_of_stage(rule, index, "replicas")

    def _check_groups(self, share: Share) -> None:
        """Each stage has the devices it needs, in one island or on whole hosts of one class of the share."""
        cluster = cluster_share(self._problem.cluster, share)
        names = device_names(self._problem.cluster, share, 0)
        known = {names[device.name]: device for device in cluster.devices()}
        for index, stage in enumerate(self._stages):
            fault = self._group_fault(stage, cluster, known)
            if fault:
                self._complain_of_stage(fault, index, "devices")

    def _group_fault(self, stage: StageEntry, cluster: Cluster, known: Mapping[str, Device]) -> str:
        wanted = stage.replicas * stage.tensor_parallel
        if len(stage.devices) != wanted:
            return f"must be replicas x tensor_parallel = {wanted} devices, got {len(stage.devices)}"
        if not self._devices.issuperset(stage.devices):
            return ""
        foreign = next((name for name in stage.devices if name not in known), None)
        if foreign is not None:
            return f"{shorten(foreign)} is not in the share of the first pipeline"
        try:
            hosting_of(cluster, tuple(stage.devices), known, tensor_parallel=stage.tensor_parallel)
        except BadInputError as error:
            return error.complaints[0]
        return ""

    def _check_copy(self, number: int, share: Share) -> None:
        """Another pipeline repeats the first one on the corresponding devices of its own share."""
        first, own = (device_names(self._problem.cluster, share, pipeline) for pipeline in (0, number))
        renamed = {first[name]: own[name] for name in own}
        stages = self._plan.pipelines[number].stages
        if len(stages) != len(self._stages):
            rule = f"must be as many as in the first pipeline, {len(self._stages)}, got {len(stages)}"
            self._complain(rule, "plan", "pipelines", number, "stages")
            return
        for index, (stage, model) in enumerate(zip(stages, self._stages, strict=True)):
            for key, wanted, got in _differences(stage, model, renamed):
                rule = f"must be {shorten(wanted)} as in the first pipeline, got {shorten(got)}"
                self._complain_of_stage(rule, index, key, pipeline=number)

    def _complain_of_stage(self, message: str, index: int, *steps: Step, pipeline: int = 0) -> None:
        self._complain(message, "plan", "pipelines", pipeline, "stages", index, *steps)

    def _complain(self, message: str, *steps: Step) -> None:
        node = self._document.root.at(*steps) or self._document.root
        self._document.complaints.add(node.line, node.where, message)


def _differences(
    stage: StageEntry, model: StageEntry, renamed: Mapping[str, str]
) -> Iterator[tuple[str, object, object]]:
    """Keys in which a stage differs from its model with renamed devices, each with the expected and actual value."""
    for key in StageEntry.model_fields:
        wanted, got = getattr(model, key), getattr(stage, key)
        if key == "devices":
            wanted = [renamed.get(name, name) for name in wanted]
        if wanted != got:
            yield key, wanted, got
