"""What one rank did in one training step, and when."""

from dataclasses import dataclass, replace
from typing import NamedTuple


class Span(NamedTuple):
    """One action, gradient synchronisation or optimizer step of a rank.

    Times are seconds of `time.monotonic`, which all processes of a machine share.
    """

    rank: int
    kind: str
    """An :class:`stagecut.planner.simulator.action_lists.Op`, or "sync", or "update"."""
    stage: int
    lo: int
    """First sample in the pipeline's batch, of the whole action even if the rank has only a replica's share of it."""
    hi: int
    ready_s: float
    """When the rank became free for it."""
    start_s: float
    """When its inputs had arrived."""
    end_s: float

    @property
    def wait_s(self) -> float:
        """Seconds spent waiting for inputs."""
        return self.start_s - self.ready_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """One training step of one rank."""

    rank: int
    spans: tuple[Span, ...]
    """In the order in which they ran."""
    start_s: float
    end_s: float
    loss: float
    """Mean over the global batch."""
    run_queue_share: float = 0.0
    """Share of the step for which its threads were ready to run but had no processor."""
    memory_pass_s: float | None = None
    """The longer of two fixed passes over memory, before and after the step; None if not measured."""
    late_s: float = 0.0
    """In dilated mode: how much later than they could have, in total, its actions began and ended."""
    peak_memory_bytes: float | None = None
    """Peak memory of an untimed step; None if not measured."""

    def in_plan_time(self, time_scale: float) -> "StepTrace":
        """The same trace with all seconds divided by the time scale of a dilated run."""
        spans = (Span(*span[:5], *(seconds / time_scale for seconds in span[5:])) for span in self.spans)
        return replace(
            self,
            spans=tuple(spans),
            start_s=self.start_s / time_scale,
            end_s=self.end_s / time_scale,
            late_s=self.late_s / time_scale,
        )
