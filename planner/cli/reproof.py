"""The bound of a plan file proven again, or refuted."""

import threading
import time
from dataclasses import dataclass, replace
from enum import StrEnum

from stagecut.planner.cli.certificate_checks import TOLERANCE
from stagecut.planner.cli.options.stated import stated_options
from stagecut.planner.core.result import HistoryPoint, Result, Status, relative_gap
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.solvers.registry import choose, run
from stagecut.planner.solvers.search.options import Observer, SolveOptions

SHORTEST_S = 1e-3
"""A search has to have some time."""


class Outcome(StrEnum):
    """What came of a bound."""

    PROVEN = "proven"
    """No plan of the search space is faster."""
    REFUTED = "refuted"
    """A plan is faster."""
    OPEN = "open"
    """Neither was shown before the search ended."""
    INTERRUPTED = "interrupted"
    """By the user, before either was shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A bound, as a plan file states it."""

    bound_s: float
    slack_s: float
    """Up to which times count as equal."""

    def refuted_by(self, objective_s: float | None) -> bool:
        """Whether there is a plan that is faster."""
        return objective_s is not None and objective_s < self.bound_s - self.slack_s

    def proven_by(self, bound_s: float | None) -> bool:
        """Whether nothing below is left."""
        return (bound_s or 0.0) >= self.bound_s - self.slack_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """How far a search got with the bound of a plan file."""

    claim: Claim
    result: Result
    """Of the last run, with the solver that tried."""
    seconds: float

    @property
    def outcome(self) -> Outcome:
        """What came of it."""
        if self.claim.refuted_by(self.result.objective_s):
            return Outcome.REFUTED
        if self.claim.proven_by(self.result.bound_s):
            return Outcome.PROVEN
        return Outcome.INTERRUPTED if self.result.status is Status.INTERRUPTED else Outcome.OPEN


def prove_again(
    plan_file: PlanFile,
    bound_s: float,
    *,
    iteration_s: float,
    time_limit_s: float | None,
    observer: Observer,
    cancelled: threading.Event,
) -> Proof:
    """Look for a proof of the bound, or for a plan that is faster; ends as soon as there is one of them.

    The search has the options of the file, the solver that `auto` stands for, and begins from the plan.

    Parameters
    ----------
    bound_s
        Of the certificate.
    iteration_s
        Of the plan, as simulated.
    cancelled
        Set from any thread to stop.

    Raises
    ------
    UnsupportedError
        If the options ask for what this system does not have.
    """
    claim, settled = Claim(bound_s=bound_s, slack_s=TOLERANCE * iteration_s), _Either(cancelled)

    def observe(point: HistoryPoint) -> None:
        observer(point)
        if claim.refuted_by(point.objective_s) or claim.proven_by(point.bound_s):
            settled.set()

    problem = plan_file.problem
    options, _ = stated_options(plan_file.provenance)
    solver = choose(problem, options.rows)
    plan, options = plan_file.plan, _closing_at(claim, iteration_s, options)
    started = time.perf_counter()
    while True:
        seconds = time.perf_counter() - started
        options = replace(
            options, time_limit_s=None if time_limit_s is None else max(time_limit_s - seconds, SHORTEST_S)
        )
        result = run(problem, solver, options, observer=observe, cancelled=settled, start=plan)
        proof = Proof(claim=claim, result=result, seconds=time.perf_counter() - started)
        closer = _closing_at(claim, result.objective_s, options)
        if proof.outcome is not Outcome.OPEN or result.status is not Status.OPTIMAL or closer.gap >= options.gap:
            return proof
        plan, options = result.plan or plan, closer  # a better plan closed the gap before the bound was reached


def _closing_at(claim: Claim, objective_s: float | None, options: SolveOptions) -> SolveOptions:
    """Options such that a search that finds nothing better closes its gap only where it reaches the bound."""
    gap = relative_gap(objective_s, claim.bound_s) or 0.0
    return replace(options, gap=min(gap, options.gap))


class _Either(threading.Event):
    """Set by itself, or with another event."""

    def __init__(self, other: threading.Event) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        """Whether one of them is."""
        return super().is_set() or self._other.is_set()
