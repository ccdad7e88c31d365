"""Predicted and measured throughput of virtual workers that train through waves."""

from dataclasses import dataclass

from stagecut.planner.core.messages.checks import require_count, require_positive
from stagecut.planner.core.run_record import CheckRecord, Pairs, RunMode, relative_error


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveWaits:
    """Seconds that the stages of a worker wait, all together, per wave."""

    gate_s: float = 0.0
    """At gates, for the other workers."""
    pipeline_s: float = 0.0
    """For neighbouring stages."""
    link_s: float = 0.0
    """For messages that queue behind others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedWorker:
    """How a run lost a virtual worker."""

    num_waves: int
    """First waves of the worker that count: what it had of later ones is lost."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveWorkerRecord:
    """One virtual worker of a run; what one that was dropped has measured is unknown."""

    devices: tuple[str, ...]
    """The device of each stage."""
    samples_per_wave: int
    predicted_samples_per_s: float
    measured_samples_per_s: float | None = None
    """Over the worker's own measured waves."""
    local_staleness: int | None = None
    """Most of its own earlier updates that the weights of a minibatch lacked."""
    local_bound: int | None = None
    global_staleness: int | None = None
    """Most earlier minibatches of another worker that the weights of a minibatch lacked, by their clock."""
    global_bound: int | None = None
    predicted_waits: WaveWaits
    measured_waits: WaveWaits | None = None
    """Over the whole run, start and end included."""
    dropped: DroppedWorker | None = None
    """None if the worker has trained to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRunRecord:
    """One run of a plan of virtual workers."""

    plan_hash: str
    """SHA-256 of the plan file's tree."""
    profile_hash: str
    """SHA-256 of the model profile's tree inside the plan file."""
    model: str
    cluster: str
    device: str
    """Name of the hardware the ranks ran on."""
    mode: RunMode
    one_process: bool
    """Whether the ranks were threads of one process."""
    versions: Pairs
    started: str
    """Start time in UTC, such as 2026-01-31T12:00:00Z."""
    samples_per_wave: int
    """Of all workers."""
    num_waves: int
    """All waves, including the warm-up and a last one, in which the pipelines run empty."""
    warmup: int
    """Number of initial waves that are not measured; nor is the last one."""
    predicted_samples_per_s: float
    """Simulated throughput in the long run."""
    measured_samples_per_s: float
    """Samples of a wave of all workers that trained to the end, over the time that their slowest took for one."""
    time_scale: float | None = None
    """Factor by which a dilated run was slowed down; its times are divided by it. None in a real run."""
    losses: tuple[float | None, ...]
    """Mean loss of each wave over the samples of all workers that trained to the end; None if it is not finite."""
    workers: tuple[WaveWorkerRecord, ...]
    check: CheckRecord | None = None
    """Comparison of one wave with a single process; None if none was made."""

    def __post_init__(self) -> None:
        for field in ("samples_per_wave", "num_waves"):
            require_count("run", field, getattr(self, field))
        require_positive("run", "measured_samples_per_s", self.measured_samples_per_s)

    @property
    def num_measured(self) -> int:
        """Waves over which the throughput is taken."""
        return self.num_waves - self.warmup - 1

    @property
    def error(self) -> float | None:
        """Relative error of the predicted throughput; None if workers were dropped, with which it was predicted."""
        if any(worker.dropped for worker in self.workers):
            return None
        return relative_error(self.predicted_samples_per_s, self.measured_samples_per_s)
