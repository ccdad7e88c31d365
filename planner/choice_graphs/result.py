"""The answer of a search on a choice graph."""

from dataclasses import dataclass

from stagecut.planner.core.result import InternalFault, Status, StopCause, relative_gap


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicePoint:
    """Cost of the best choice and the bound known at one time during a search."""

    seconds: float
    objective: int | None
    bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceResult:
    """A choice and a bound that no choice undercuts, both exact integers, re-computed from the graph."""

    status: Status
    seconds: float
    choices: tuple[int, ...] | None = None
    """The option of every node; None if none was found."""
    objective: int | None = None
    """Cost of the choices."""
    bound: int
    """No legal choice costs less. Without meaning if the status says that there is none."""
    peak_usage: int | None = None
    """The largest usage of the choices at any moment."""
    overflow: str | None = None
    """Why no choice is legal: the moment, and by how much it exceeds the limit at least."""
    stopped_by: StopCause | None = None
    """None if the search ended by itself."""
    fault: InternalFault | None = None
    """What went wrong; choices and bound found by then remain valid."""
    history: tuple[ChoicePoint, ...] = ()

    @property
    def gap(self) -> float | None:
        """(objective - bound) / objective; None unless a choice is known."""
        return None if self.objective is None else relative_gap(self.objective, self.bound)
