"""Options that every solver takes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from stagecut.planner.core.messages.checks import require, require_count, require_non_negative, require_positive
from stagecut.planner.core.numerics.cores import usable_cores
from stagecut.planner.core.result import HistoryPoint

StopCheck = Callable[[], bool]
"""Polled during a search; True means stop."""
Observer = Callable[[HistoryPoint], None]
"""Called with every improvement of plan or bound."""


class RowChoice(StrEnum):
    """Which families of lower-bound rows a solver uses."""

    SHARED = "shared"
    """Busy, fill and sync, which every exact solver can express; the bound is their optimum."""
    ALL = "all"
    """Also drain, pair, link, late and flush; plans already simulated are excluded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """Limits and tolerances of one run."""

    gap: float = 1e-4
    """Relative gap at which a plan counts as optimal."""
    time_limit_s: float | None = 60.0
    """None: no limit."""
    memory_limit_bytes: float | None = None
    """Resident memory of the whole process; None: no limit."""
    seed: int = 0
    threads: int = 1
    jobs: int = field(default_factory=usable_cores)
    """Threads that prove at once; the answer is the same for any number."""
    rows: RowChoice = RowChoice.ALL

    def __post_init__(self) -> None:
        require_non_negative("options", "gap", self.gap)
        require(self.gap < 1, "options", "gap", "below 1", self.gap)
        if self.time_limit_s is not None:
            require_positive("options", "time_limit_s", self.time_limit_s)
        if self.memory_limit_bytes is not None:
            require_positive("options", "memory_limit_bytes", self.memory_limit_bytes)
        require_count("options", "threads", self.threads)
        require_count("options", "jobs", self.jobs)
