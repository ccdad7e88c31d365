"""What every solver returns."""

from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.plan import Plan


class Status(StrEnum):
    """How a search ended."""

    OPTIMAL = "optimal"
    """The gap is within the one asked for."""
    FEASIBLE = "feasible"
    """A plan, its gap wider than asked for."""
    INFEASIBLE = "infeasible"
    """Proven: no plan fits."""
    NO_PLAN = "no-plan-in-budget"
    """Neither a plan nor a proof that there is none."""
    INTERRUPTED = "interrupted"
    """Stopped by the user; with the best plan so far, if any."""


class StopCause(StrEnum):
    """What ended a search that still had something to do."""

    TIME = "time limit"
    MEMORY = "memory limit"
    USER = "interruption"
    """Ctrl-C, or another request of the caller."""
    FAULT = "internal fault"
    """An error of our own or of a library: see :class:`Fault`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """Best plan and bound known at one moment of a search."""

    seconds: float
    objective_s: float | None
    bound_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why nothing fits: the stage that comes nearest on one device type still lacks memory."""

    device_type: str
    layers: tuple[int, int]
    """Start and stop of the stage."""
    needed_bytes: float
    limit_bytes: float
    remedy: str
    """The smallest change found that would help."""

    @property
    def short_bytes(self) -> float:
        """How much memory is missing."""
        return self.needed_bytes - self.limit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error of our own or of a library that ended a search; plan and bound are those known by then."""

    reason: str
    """In one line."""
    traceback: str
    """As Python prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnObjective:
    """What a published planner minimises, where that is not our simulated time."""

    name: str
    """With its unit, for example "latency, s" or "time per sample, s"."""
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer of a solver; every number recomputed by the simulator and the bounds."""

    status: Status
    solver: str
    seconds: float
    plan: Plan | None = None
    objective_s: float | None = None
    """Simulated iteration time of the plan."""
    bound_s: float | None = None
    """No plan of the search space is faster; None where the solver proves nothing."""
    row_bound_s: float | None = None
    """Least value of the bound rows over the search space, where it was solved to optimality."""
    counts: tuple[tuple[str, int], ...] = ()
    """How much work was done: plans simulated, arcs, nodes ..."""
    step_seconds: tuple[tuple[str, float], ...] = ()
    """By step of the search; a step inside another counts apart."""
    history: tuple[HistoryPoint, ...] = ()
    shortages: tuple[Shortage, ...] = ()
    """Only where infeasible."""
    own_objective: OwnObjective | None = None
    """The plan in the solver's own terms, where these are not ours."""
    stopped_by: StopCause | None = None
    """None: the search was done, with a proof or without."""
    fault: Fault | None = None
    """What went wrong; a plan or a proof found by then stands all the same."""

    @property
    def gap(self) -> float | None:
        """(objective - bound) / objective, None without both."""
        return relative_gap(self.objective_s, self.bound_s)


def relative_gap(objective_s: float | None, bound_s: float | None) -> float | None:
    """(objective - bound) / objective, never below zero; None without both."""
    if objective_s is None or bound_s is None:
        return None
    return max(0.0, objective_s - bound_s) / objective_s if objective_s > 0 else 0.0
