"""What must hold between the parts of a plan file, whatever the times."""

from planner.core.errors import BadInputError
from planner.core.placement import hosting_of
from planner.core.problem import Problem
from planner.io.complaints import Step, nearest, shorten
from planner.io.plan_entry import PlanFileEntry, StageEntry
from planner.io.tree import Document


class PlanChecks:
    """Notes complaints about a plan that does not fit its own inputs, or that a later version may read."""

    def __init__(self, entry: PlanFileEntry, document: Document, problem: Problem) -> None:
        self._plan = entry.plan
        self._stages = entry.plan.pipelines[0].stages
        self._num_predicted = len(entry.predicted.stages)
        self._document = document
        self._problem = problem
        self._devices = {device.name: device for device in problem.cluster.devices()}

    def run(self) -> None:
        """Every check."""
        self._check_pipelines()
        self._check_batch()
        self._check_chain()
        self._check_warmup()
        self._check_devices()
        for index, stage in enumerate(self._stages):
            self._check_sizes(index, stage)
            self._check_group(index, stage)
        if self._num_predicted != len(self._stages):
            rule = f"must be one per stage, {len(self._stages)}, got {self._num_predicted}"
            self._complain(rule, "predicted", "stages")

    def _check_pipelines(self) -> None:
        if len(self._plan.pipelines) > 1:
            self._complain("several pipelines are not supported in this version", "plan", "pipelines")

    def _check_batch(self) -> None:
        """Together the micro-batches are the global batch."""
        batch, size, number = self._problem.job.global_batch, self._plan.micro_batch, self._plan.num_microbatches
        if size * number != batch:
            rule = f"micro_batch x num_microbatches must be the global batch {batch}, got {size} x {number}"
            self._complain(rule, "plan", "num_microbatches")

    def _check_chain(self) -> None:
        """Every layer is in exactly one stage, in order, and is called as in the profile."""
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
            self._complain_of_stage(f"must be {shorten(wanted)} by start and stop, got {shorten(name)}", index, key)

    def _check_warmup(self) -> None:
        """A stage that runs fewer forwards ahead than the next one needs would wait for ever."""
        most, what = self._plan.num_microbatches, "the number of micro-batches"
        for index, stage in enumerate(self._stages):
            if stage.warmup_depth > most:
                rule = f"must be at most {most}, {what}, got {stage.warmup_depth}"
                self._complain_of_stage(rule, index, "warmup_depth")
            else:
                most, what = stage.warmup_depth, "that of the stage before"

    def _check_devices(self) -> None:
        """Every device is one of the cluster, and is used once."""
        taken: set[str] = set()
        for index, stage in enumerate(self._stages):
            for slot, name in enumerate(stage.devices):
                if name not in self._devices:
                    cluster = shorten(self._problem.cluster.name)
                    rule = f"{shorten(name)} is no device of cluster {cluster}{nearest(name, self._devices)}"
                    self._complain_of_stage(rule, index, "devices", slot)
                elif name in taken:
                    self._complain_of_stage(f"{shorten(name)} is used twice", index, "devices", slot)
                taken.add(name)

    def _check_sizes(self, index: int, stage: StageEntry) -> None:
        """What the simulator of this version can play."""
        if stage.tensor_parallel != 1:
            rule = f"tensor parallelism is not supported in this version, must be 1, got {stage.tensor_parallel}"
            self._complain_of_stage(rule, index, "tensor_parallel")
        for key in ("forward_micro_batch", "backward_micro_batch"):
            size, wanted = getattr(stage, key), self._plan.micro_batch
            if size != wanted:
                rule = f"sizes of their own for stages are not supported in this version, must be {wanted}, got {size}"
                self._complain_of_stage(rule, index, key)
        if self._plan.micro_batch % stage.replicas:
            rule = f"must divide the micro-batch {self._plan.micro_batch}, got {stage.replicas}"
            self._complain_of_stage(rule, index, "replicas")

    def _check_group(self, index: int, stage: StageEntry) -> None:
        """The devices are as many as the stage needs, of one island or of whole hosts of one class."""
        wanted = stage.replicas * stage.tensor_parallel
        if len(stage.devices) != wanted:
            rule = f"must be replicas x tensor_parallel = {wanted} devices, got {len(stage.devices)}"
            self._complain_of_stage(rule, index, "devices")
        elif all(name in self._devices for name in stage.devices):
            try:
                hosting_of(self._problem.cluster, tuple(stage.devices), self._devices)
            except BadInputError as error:
                self._complain_of_stage(error.complaints[0], index, "devices")

    def _complain_of_stage(self, message: str, index: int, *steps: Step) -> None:
        self._complain(message, "plan", "pipelines", 0, "stages", index, *steps)

    def _complain(self, message: str, *steps: Step) -> None:
        node = self._document.root.at(*steps) or self._document.root
        self._document.complaints.add(node.line, node.where, message)
