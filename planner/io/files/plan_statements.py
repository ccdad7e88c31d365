"""What a plan file states about its plan: predictions, certificate and provenance."""

from dataclasses import dataclass

from stagecut.planner.core.result import Status

OptionValue = bool | int | float | str | None
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePrediction:
    """Predicted times and memory of one stage, on each of its devices."""

    forward_s: float
    """Seconds per micro-batch, forward."""
    backward_s: float
    """Seconds per micro-batch, backward, including recomputation."""
    transfer_s: float
    """Seconds to send one micro-batch to the next stage, one way; 0 for the last stage."""
    sync_s: float
    """Seconds of the gradient all-reduce."""
    update_s: float
    """Seconds of the optimizer step."""
    memory_bytes: float
    """Peak memory in bytes."""
    limit_bytes: float
    """Memory of the device in bytes, or the word unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted times and memory."""

    iteration_s: float
    """Simulated seconds of one iteration."""
    stages: tuple[StagePrediction, ...]
    """One per stage of a pipeline, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How good the plan is proven to be."""

    status: Status
    """optimal means that the gap is within the requested one."""
    solver: str
    """The solver that found the plan."""
    objective_s: float
    """Simulated seconds of one iteration."""
    bound_s: float | None = None
    """No plan of the search space takes fewer seconds; None if nothing is proven."""
    gap: float | None = None
    """(objective_s - bound_s) / objective_s; None if nothing is proven."""
    seconds: float | None = None
    """Duration of the search in seconds; None if the file must not depend on the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the plan comes from; pairs are sorted by name."""

    versions: Pairs
    """Versions of stagecut, Python and the libraries that affect the result."""
    options: tuple[tuple[str, OptionValue], ...]
    """Options of the solver."""
    seed: int
    """Random seed of the solver."""
    input_hashes: Pairs
    """Hashes that reveal inputs changed by hand."""
