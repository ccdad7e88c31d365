"""A plan of virtual workers of different shape that train through waves."""

from dataclasses import dataclass

from stagecut.planner.core.checks import require, require_count, require_distinct
from stagecut.planner.core.plan import Pipeline, Stage
from stagecut.planner.core.waves import Carrier, LocalStep, ShardPlacement, WaveRule


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualWorker:
    """One pipeline that holds the whole model, with devices, partition and minibatches of its own."""

    stages: tuple[Stage, ...]
    """A single device each; `warmup_depth` is how many minibatches it forwards before its first backward."""
    minibatch: int
    """Samples per minibatch."""
    in_flight: int
    """N_m: minibatch p + N_m starts once minibatch p is complete."""
    wave: int
    """Minibatches per wave: N_m unless waves are in proportion to speed, or make one step each."""

    def __post_init__(self) -> None:
        Pipeline(stages=self.stages)  # checks that they are contiguous
        for field in ("minibatch", "in_flight", "wave"):
            require_count("virtual worker", field, getattr(self, field))
        for stage in self.stages:
            owner = f"stage [{stage.start}, {stage.stop}) of a virtual worker"
            require(len(stage.devices) == 1, owner, "devices", "a single one", stage.devices)
            rule = f"at most the {self.in_flight} minibatches in flight"
            require(stage.warmup_depth <= self.in_flight, owner, "warmup_depth", rule, stage.warmup_depth)
            sizes = {stage.forward_micro_batch, stage.backward_micro_batch}
            require(sizes == {self.minibatch}, owner, "micro-batch", f"the minibatch of {self.minibatch}", sizes)

    @property
    def num_stages(self) -> int:
        """Length of the pipeline."""
        return len(self.stages)

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of each stage."""
        return tuple(stage.devices[0] for stage in self.stages)

    @property
    def samples_per_wave(self) -> int:
        """Samples of one wave."""
        return self.minibatch * self.wave


@dataclass(frozen=True, slots=True, kw_only=True)
class WavePlan:
    """Virtual workers and how they exchange their updates."""

    workers: tuple[VirtualWorker, ...]
    clock_distance: int = 0
    """D: how many waves a worker may be ahead of the slowest one."""
    local_step: LocalStep = LocalStep.MINIBATCH
    carrier: Carrier = Carrier.PARAMETER_SERVER
    shards: ShardPlacement = ShardPlacement.SPREAD
    """How `owners` were chosen."""
    owners: tuple[str, ...] = ()
    """The host whose parameter server owns each layer; empty without parameter servers."""

    def __post_init__(self) -> None:
        require(len(self.workers) > 0, "plan", "workers", "not empty", ())
        for worker in self.workers:
            self.rule_of(worker)
            if self.local_step is LocalStep.WAVE:
                depths = [stage.warmup_depth for stage in worker.stages]
                require(max(depths) <= worker.wave, "plan", "warmup_depth", f"at most a wave, {worker.wave}", depths)
        require_distinct("plan", "devices", (device for worker in self.workers for device in worker.devices))
        lengths = {worker.stages[-1].stop for worker in self.workers}
        require(len(lengths) == 1, "plan", "workers", "all over the same layers", sorted(lengths))
        expected = self.num_layers if self.carrier is Carrier.PARAMETER_SERVER else 0
        require(len(self.owners) == expected, "plan", "owners", f"one host for each of {expected} layers", self.owners)

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return self.workers[0].stages[-1].stop

    @property
    def samples_per_wave(self) -> int:
        """Samples of one wave of all workers."""
        return sum(worker.samples_per_wave for worker in self.workers)

    def rule_of(self, worker: VirtualWorker) -> WaveRule:
        """When a worker waits for the others."""
        return WaveRule(wave=worker.wave, clock_distance=self.clock_distance, local_step=self.local_step)
