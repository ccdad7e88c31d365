"""The result of planning virtual workers that train through waves."""

from dataclasses import dataclass

from stagecut.planner.core.result import InternalFault, Status, StopCause
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class WavePoint:
    """Best plan and bound known at one time during a search."""

    seconds: float
    samples_per_s: float | None
    bound_samples_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveResult:
    """The answer, with the throughput recomputed by the simulator."""

    status: Status
    solver: str
    seconds: float
    plan: WavePlan | None = None
    samples_per_s: float | None = None
    """Simulated throughput in the long run."""
    bound_samples_per_s: float | None = None
    """No plan of the search space has a higher throughput; None if nothing is proven."""
    counts: tuple[tuple[str, int], ...] = ()
    """Work done: patterns, plans simulated, programs solved ..."""
    step_seconds: tuple[tuple[str, float], ...] = ()
    """Seconds by step of the search."""
    history: tuple[WavePoint, ...] = ()
    reason: str = ""
    """Why no plan fits, with numbers; only if none does."""
    stopped_by: StopCause | None = None
    """None if the search ran to completion, with or without a proof."""
    fault: InternalFault | None = None
    """What went wrong; a plan or bound found by then remains valid."""

    @property
    def gap(self) -> float | None:
        """(bound - throughput) / bound, at least zero; None unless both are known."""
        if self.samples_per_s is None or self.bound_samples_per_s is None:
            return None
        bound = self.bound_samples_per_s
        return max(0.0, bound - self.samples_per_s) / bound if bound > 0 else 0.0
