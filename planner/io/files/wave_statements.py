"""What a plan file of virtual workers states about its plan: predictions and certificate."""

from dataclasses import dataclass

from stagecut.planner.core.result import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveStagePrediction:
    """Predicted times and memory of one stage of a virtual worker."""

    forward_s: float
    """Seconds per minibatch, forward."""
    backward_s: float
    """Seconds per minibatch, backward, including recomputation."""
    transfer_s: float
    """Seconds to send one minibatch to the next stage, one way; 0 for the last stage."""
    update_s: float
    """Seconds of one local step of the optimizer."""
    push_s: float
    """Seconds to push the update of one wave to all parameter servers; 0 without them."""
    pull_s: float
    """Seconds to pull from all parameter servers, with one step a wave a single wave; 0 without them."""
    all_reduce_s: float
    """Seconds of the all-reduces of one wave that the stage takes part in; 0 with parameter servers."""
    weight_versions: int
    """Versions of the weights in memory."""
    memory_bytes: float
    """Peak memory in bytes, all versions of the weights included."""
    limit_bytes: float
    """Memory of the device in bytes, or the word unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPrediction:
    """Predictions for one virtual worker."""

    stages: tuple[WaveStagePrediction, ...]
    """One per stage, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WavePrediction:
    """Predicted throughput, staleness, times and memory."""

    samples_per_s: float
    """Simulated samples per second of all workers in the long run."""
    s_local: int
    """Most of its own updates that a minibatch computes without: minibatches in flight, less one."""
    s_global: int
    """Most minibatches of another worker that a minibatch computes without."""
    workers: tuple[WorkerPrediction, ...]
    """One per virtual worker, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveCertificate:
    """How good the plan is proven to be."""

    status: Status
    """optimal means that the gap is within the requested one."""
    solver: str
    """What found the plan."""
    samples_per_s: float
    """Simulated samples per second."""
    bound_samples_per_s: float | None = None
    """No plan of the search space makes more samples per second; None if nothing is proven."""
    gap: float | None = None
    """(bound_samples_per_s - samples_per_s) / bound_samples_per_s; None if nothing is proven."""
