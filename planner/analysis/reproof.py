"""The bound of a plan file proven again, or refuted."""

import threading
import time
from dataclasses import dataclass, replace
from enum import StrEnum

from stagecut.planner.analysis.stated_options import stated_options
from stagecut.planner.core.numerics.tolerances import RECOMPUTED
from stagecut.planner.core.result import HistoryPoint, Result, Status, relative_gap
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.solvers.registry import AUTO, run, solver_for
from stagecut.planner.solvers.search.options import Observer, SolveOptions

SHORTEST_S = 1e-3
"""Time limits must be positive, even where nothing is left of them."""


class ClaimOutcome(StrEnum):
    """What became of a claimed bound."""

    PROVEN = "proven"
    """No plan of the search space is faster."""
    REFUTED = "refuted"
    """Some plan is faster."""
    OPEN = "open"
    """The search ended before either was shown."""
    INTERRUPTED = "interrupted"
    """The user stopped the search before either was shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A bound as a plan file states it."""

    bound_s: float
    slack_s: float
    """Times that differ by no more than this count as equal."""

    def settled_by(self, objective_s: float | None, bound_s: float | None) -> ClaimOutcome | None:
        """Whether the time of a plan refutes the claim, or a bound proves it; None for neither."""
        if objective_s is not None and objective_s < self.bound_s - self.slack_s:
            return ClaimOutcome.REFUTED
        return ClaimOutcome.PROVEN if (bound_s or 0.0) >= self.bound_s - self.slack_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproof:
    """How far a search got with the bound of a plan file."""

    claim: Claim
    result: Result
    """Result of the last run."""
    seconds: float
    """Duration of all runs."""

    @property
    def outcome(self) -> ClaimOutcome:
        """What became of the claim."""
        unsettled = ClaimOutcome.INTERRUPTED if self.result.status is Status.INTERRUPTED else ClaimOutcome.OPEN
        return self.claim.settled_by(self.result.objective_s, self.result.bound_s) or unsettled


def prove_again(
    plan_file: PlanFile,
    bound_s: float,
    *,
    iteration_s: float,
    time_limit_s: float | None,
    observer: Observer,
    cancelled: threading.Event,
) -> Reproof:
    """Search for a proof of the bound, or for a faster plan; stop at the first of the two.

    The search uses the options of the file and the solver that `auto` stands for, and starts from the plan, whose
    simulated time is `iteration_s`. Any thread may stop it by the event.

    Raises
    ------
    UnsupportedError
        If the options ask for something that this system lacks.
    """
    claim, settled = Claim(bound_s=bound_s, slack_s=RECOMPUTED * iteration_s), _Either(cancelled)

    def observe(point: HistoryPoint) -> None:
        observer(point)
        if claim.settled_by(point.objective_s, point.bound_s):
            settled.set()

    problem, plan = plan_file.problem, plan_file.plan
    options, _ = stated_options(plan_file.provenance)
    solver = solver_for(AUTO, problem, rows=options.rows)
    options = _closing_at(claim, iteration_s, options)
    started = time.perf_counter()
    while True:
        left_s = None if time_limit_s is None else max(time_limit_s - (time.perf_counter() - started), SHORTEST_S)
        options = replace(options, time_limit_s=left_s)
        result = run(problem, solver, options, observer=observe, cancelled=settled, start=plan)
        proof = Reproof(claim=claim, result=result, seconds=time.perf_counter() - started)
        closer = _closing_at(claim, result.objective_s, options)
        if proof.outcome is not ClaimOutcome.OPEN or result.status is not Status.OPTIMAL or closer.gap >= options.gap:
            return proof
        plan, options = result.plan or plan, closer  # a better plan closed the gap before the bound was reached


def _closing_at(claim: Claim, objective_s: float | None, options: SolveOptions) -> SolveOptions:
    """Options under which a search that finds nothing better closes its gap only at the claimed bound."""
    gap = relative_gap(objective_s, claim.bound_s) or 0.0
    return replace(options, gap=min(gap, options.gap))


class _Either(threading.Event):
    """An event that is set by itself, or by another one."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        """Whether either of them is set."""
        return super().is_set() or self._other.is_set()
