"""A plan of virtual workers of different shape that train through waves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stagecut.planner.core.messages.checks import require, require_count, require_distinct
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
            sizes = {stage.forward_micro_batch, stage.backward_micro_batch}
            require(sizes == {self.minibatch}, owner, "micro-batch", f"the minibatch of {self.minibatch}", sizes)

    @property
    def num_stages(self) -> int:
        """Length of the pipeline."""
        return len(self.stages)

    def stage_with(self, layer: int) -> int:
        """The number of the stage that holds a layer."""
        return next(number for number, stage in enumerate(self.stages) if layer < stage.stop)

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
        waits = waits_for_waves(len(self.workers), self.local_step)
        for number, worker in enumerate(self.workers):
            self.rule_of(worker)
            depths = [stage.warmup_depth for stage in worker.stages]
            for stage, most, what in deep_stages(depths, worker.in_flight, wave=worker.wave if waits else None):
                owner = f"stage {stage} of worker {number}"
                require(False, owner, "warmup_depth", f"at most {most}, {what}", depths[stage])
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

    def shared_runs(self) -> tuple[tuple[int, int], ...]:
        """Runs of layers [start, stop) between neighbouring cuts of any workers: one stage of each holds them."""
        cuts = {cut for worker in self.workers for stage in worker.stages for cut in (stage.start, stage.stop)}
        return tuple(pairwise(sorted(cuts)))

    def rule_of(self, worker: VirtualWorker) -> WaveRule:
        """When a worker waits for the others."""
        return WaveRule(wave=worker.wave, clock_distance=self.clock_distance, local_step=self.local_step)

    def others(self, number: int) -> tuple[VirtualWorker, ...]:
        """All workers but one."""
        return self.workers[:number] + self.workers[number + 1 :]

    def staleness_of_others(self, number: int) -> tuple[int, ...]:
        """Most minibatches of each worker that a minibatch of one worker lacks; 0 of its own, which are counted apart.

        See :meth:`~stagecut.planner.core.waves.WaveRule.global_staleness`.
        """
        rule = self.rule_of(self.workers[number])
        return tuple(
            0 if other == number else rule.global_staleness(worker.wave) for other, worker in enumerate(self.workers)
        )


def waits_for_waves(num_workers: int, local_step: LocalStep) -> bool:
    """Whether a stage waits for what becomes of its own earlier waves, so that a wave limits its depth."""
    return num_workers > 1 or local_step is LocalStep.WAVE


def deep_stages(depths: Sequence[int], in_flight: int, *, wave: int | None) -> Iterator[tuple[int, int, str]]:
    """Stages with so many forwards before their first backward that something would wait forever.

    That is, more than the stage before sends, than are in flight, or, where a stage waits for its waves, than a wave
    has: the gate of wave c asks for what the push of wave c - 1 makes complete, and minibatch (c + 1) H would start
    before the backward of minibatch c H, which ends wave c - 1.

    Yields
    ------
    tuple
        Number of the stage, its largest possible depth, and what limits that.
    """
    most, what = in_flight, "the minibatches in flight"
    if wave is not None and wave < most:
        most, what = wave, "the minibatches of a wave"
    for number, depth in enumerate(depths):
        if depth > most:
            yield number, most, what
        else:
            most, what = depth, "that of the previous stage"
