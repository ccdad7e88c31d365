"""The result of a solver."""

from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.plan import Plan


class Status(StrEnum):
    """How a search ended."""

    OPTIMAL = "optimal"
    """The gap is within the requested one."""
    FEASIBLE = "feasible"
    """There is a plan, with a gap wider than requested."""
    INFEASIBLE = "infeasible"
    """Proven: no plan fits."""
    NO_PLAN = "no-plan-in-budget"
    """Neither a plan nor a proof that there is none."""
    INTERRUPTED = "interrupted"
    """Stopped by the user, with the best plan so far, if any."""


class StopCause(StrEnum):
    """What ended a search before it was done."""

    TIME = "time limit"
    MEMORY = "memory limit"
    USER = "interruption"
    """Ctrl-C, or another request of the caller."""
    FAULT = "internal fault"
    """An error in stagecut or a library: see :class:`InternalFault`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """Best plan and bound known at one time during a search."""

    seconds: float
    objective_s: float | None
    bound_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why nothing fits: the memory missing on one device type even for the stage closest to fitting."""

    device_type: str
    layers: tuple[int, int]
    """Start and stop of the stage."""
    needed_bytes: float
    limit_bytes: float
    remedy: str
    """The smallest change found to fix it."""

    @property
    def short_bytes(self) -> float:
        """Missing memory."""
        return self.needed_bytes - self.limit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalFault:
    """An error in stagecut or a library that ended a search; plan and bound are those known by then."""

    reason: str
    """Summary on one line."""
    traceback: str
    """Traceback as printed by Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnObjective:
    """The objective of a published planner that does not minimise our simulated time."""

    name: str
    """Includes the unit, for example "latency, s" or "time per sample, s"."""
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer of a solver, with every number recomputed by the simulator and the bounds."""

    status: Status
    solver: str
    seconds: float
    plan: Plan | None = None
    objective_s: float | None = None
    """Simulated iteration time of the plan."""
    bound_s: float | None = None
    """No plan in the search space is faster; None if the solver proves nothing."""
    row_bound_s: float | None = None
    """Least value of the bound rows over the search space, if solved to optimality."""
    counts: tuple[tuple[str, int], ...] = ()
    """Work done: plans simulated, arcs, nodes ..."""
    step_seconds: tuple[tuple[str, float], ...] = ()
    """Seconds by step of the search; nested steps are counted separately."""
    history: tuple[HistoryPoint, ...] = ()
    shortages: tuple[Shortage, ...] = ()
    """Present only if the problem is infeasible."""
    own_objective: OwnObjective | None = None
    """Value of the plan in the solver's own objective, if that is not ours."""
    stopped_by: StopCause | None = None
    """None if the search ran to completion, with or without a proof."""
    fault: InternalFault | None = None
    """What went wrong; a plan or proof found by then remains valid."""

    @property
    def gap(self) -> float | None:
        """(objective - bound) / objective; None unless both are known."""
        return relative_gap(self.objective_s, self.bound_s)


def relative_gap(objective_s: float | None, bound_s: float | None) -> float | None:
    """(objective - bound) / objective, at least zero; None unless both are known."""
    if objective_s is None or bound_s is None:
        return None
    return max(0.0, objective_s - bound_s) / objective_s if objective_s > 0 else 0.0
