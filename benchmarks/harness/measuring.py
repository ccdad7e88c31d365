"""One search, preferably in a process of its own: its result, and what it took."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.harness.plan_balance import stage_balance
from benchmarks.problems.specs import Spec
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import HistoryPoint, OwnObjective, Result, relative_gap
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

GAP_MARKS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0001)
"""Gaps for which the time of their first proof is recorded."""
SECOND_MARKS = (1, 3, 10, 30, 60, 120, 300)
"""Seconds of a search for which the gap is recorded."""
REFUSED, DIED = "refused", "died"
"""Statuses beside those of results: the solver does not support the problem; it ended without an answer."""
PATIENCE = 3.0
GRACE_S = 120.0
"""A process is killed after this many times its time limit plus this many seconds."""

Tree = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome of one search as it is stored, with everything that tables are made from."""

    status: str
    reason: str = ""
    """Why there is no result."""
    objective_s: float | None = None
    bound_s: float | None = None
    row_bound_s: float | None = None
    gap: float | None = None
    seconds: float | None = None
    """Total time, including the start of the process if the search had one of its own."""
    search_s: float | None = None
    """Time of the search alone."""
    peak_bytes: float | None = None
    """Largest resident memory of the process."""
    own_objective: Mapping[str, Any] | None = None
    """`name` and `value` of the solver's own objective."""
    num_stages: int | None = None
    stage_deviation_s: float | None = None
    """Population standard deviation of the stages' F + B; None without a plan."""
    max_over_mean: float | None = None
    """The slowest stage's F + B over the mean of all stages."""
    proven_after_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds after which the search had proven each gap: those of `GAP_MARKS`, and its final one."""
    first_plan_s: float | None = None
    """Seconds of the search until it had a plan."""
    first_bound_s: float | None = None
    """Seconds of the search until it had a bound above zero."""
    gap_after_s: Mapping[str, float] = field(default_factory=dict)
    """The gap after each of `SECOND_MARKS` seconds; left out where there was none."""
    counts: Mapping[str, int] = field(default_factory=dict)
    step_seconds: Mapping[str, float] = field(default_factory=dict)

    def seconds_to(self, gap: float) -> float | None:
        """When this recorded gap had been proven; None if it never was."""
        return self.proven_after_s.get(f"{gap:g}")

    @property
    def seconds_to_own_gap(self) -> float | None:
        """When the final gap had been reached; None if there is none."""
        return None if self.gap is None else self.seconds_to(self.gap)

    def tree(self) -> Tree:
        """The answer as it is written to a file."""
        return asdict(self)


def answer_of(tree: Mapping[str, Any]) -> Answer:
    """The answer that :meth:`Answer.tree` wrote."""
    return Answer(**tree)


Answers = Mapping[str, Answer]
"""Answers by solver."""


def answers_of(part: Tree) -> dict[str, Answer]:
    """The stored answers to one spec."""
    return {solver: answer_of(tree) for solver, tree in part.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An answer with its plan."""

    answer: Answer
    plan: Plan | None = None


Within = Callable[[], AbstractContextManager[None]]
"""What a solver is run inside; it goes to the process that runs it."""
Measure = Callable[[Spec, str, SolveOptions, Within], Measured]
"""Runs a named solver."""


def measured_here(spec: Spec, solver: str, options: SolveOptions, within: Within = nullcontext) -> Measured:
    """Run a solver in this process."""
    started = time.perf_counter()
    problem = spec.problem()
    try:
        with within():
            result = run(problem, solver, options)
    except UnsupportedError as refusal:
        return Measured(answer=Answer(status=REFUSED, reason=str(refusal)))
    seconds = time.perf_counter() - started
    peak_bytes = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = replace(answer_to(result), seconds=round(seconds, 3), peak_bytes=peak_bytes)
    return Measured(answer=_with_stages(answer, problem, result.plan), plan=result.plan)


def measured(spec: Spec, solver: str, options: SolveOptions, within: Within = nullcontext) -> Measured:
    """Run a solver in a process of its own, whose start counts too."""
    started = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, spec, solver, options, within))
    process.start()
    sender.close()
    try:
        found = _received(receiver, options.time_limit_s)
    finally:
        process.kill()
        process.join()
    if found.answer.seconds is None:
        return found
    return replace(found, answer=replace(found.answer, seconds=round(time.perf_counter() - started, 3)))


def answer_to(result: Result) -> Answer:
    """The part of a result that is stored."""
    return Answer(
        status=str(result.status),
        objective_s=result.objective_s,
        bound_s=result.bound_s,
        row_bound_s=result.row_bound_s,
        gap=result.gap,
        search_s=round(result.seconds, 4),
        own_objective=_own_objective(result.own_objective),
        proven_after_s=_proven_after_s(result),
        first_plan_s=next((_rounded(point) for point in result.history if point.objective_s is not None), None),
        first_bound_s=next((_rounded(point) for point in result.history if point.bound_s), None),
        gap_after_s=_gap_after_s(result),
        counts=dict(result.counts),
        step_seconds={name: round(seconds, 3) for name, seconds in result.step_seconds},
    )


def _send(sender: Connection, spec: Spec, solver: str, options: SolveOptions, within: Within) -> None:
    sender.send(measured_here(spec, solver, options, within))


def _received(receiver: Connection, time_limit_s: float | None) -> Measured:
    patience_s = None if time_limit_s is None else PATIENCE * time_limit_s + GRACE_S
    if not receiver.poll(patience_s):
        return Measured(answer=Answer(status=DIED, reason=f"no answer after {patience_s:.0f} s"))
    try:
        found: Measured = receiver.recv()
    except EOFError:
        return Measured(answer=Answer(status=DIED, reason="the process ended without an answer"))
    return found


def _with_stages(answer: Answer, problem: Problem, plan: Plan | None) -> Answer:
    """The plan's number of stages, and how even they are."""
    if plan is None:
        return answer
    balance = stage_balance(CostModel(problem).plan(plan))
    return replace(
        answer,
        num_stages=len(plan.stages),
        stage_deviation_s=balance.std_s,
        max_over_mean=balance.max_over_mean,
    )


def _own_objective(own: OwnObjective | None) -> Tree | None:
    return None if own is None else {"name": own.name, "value": own.value}


def _proven_after_s(result: Result) -> dict[str, float]:
    gaps = [(point.seconds, relative_gap(point.objective_s, point.bound_s)) for point in result.history]
    own = () if result.gap is None else (result.gap,)
    found = {}
    for mark in (*GAP_MARKS, *own):
        seconds = next((at for at, gap in gaps if gap is not None and gap <= mark * (1 + 1e-6)), None)
        if seconds is not None:
            found[f"{mark:g}"] = round(seconds, 3)
    return found


def _gap_after_s(result: Result) -> dict[str, float]:
    found = {}
    for mark in SECOND_MARKS:
        last = next((point for point in reversed(result.history) if point.seconds <= mark), None)
        gap = None if last is None else relative_gap(last.objective_s, last.bound_s)
        if gap is not None and last is not None and last.bound_s:
            found[f"{mark}"] = gap
    return found


def _rounded(point: HistoryPoint) -> float:
    return round(point.seconds, 3)
