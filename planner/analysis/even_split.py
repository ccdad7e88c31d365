"""How fast an even split of the model is: the plan that people make without a planner."""

import math
import threading
from dataclasses import replace

from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import HistoryPoint, Result, Status
from stagecut.planner.solvers.registry import PROVING, run
from stagecut.planner.solvers.search.options import SolveOptions

EVEN = "even"
"""Name of the solver."""


def even_split(problem: Problem, *, time_limit_s: float, cancelled: threading.Event | None = None) -> Result | None:
    """The fastest even split, if any fits: equal layer counts on all devices; None if time ran out."""
    plain = replace(problem, job=replace(problem.job, sharding=None))
    even = run(plain, EVEN, SolveOptions(time_limit_s=time_limit_s), cancelled=cancelled)
    return None if even.stopped_by is not None else even


def even_split_s(problem: Problem, *, time_limit_s: float) -> float | None:
    """Its iteration time; infinite where it does not fit, None if time ran out."""
    return seconds_of(even_split(problem, time_limit_s=time_limit_s))


def seconds_of(even: Result | None) -> float | None:
    """Iteration time of an even split; infinite where it does not fit, None if it is not known."""
    if even is None:
        return None
    return math.inf if even.objective_s is None else even.objective_s


def no_slower_than(even: Result | None, result: Result, *, gap: float) -> Result:
    """The result of a search that was stopped, with the even split in place of a slower plan.

    A search whose time ended before its first steps, while they were compiled, may know only a slower one. Results of
    searches that ended by themselves or prove nothing stay as they are. `gap` is the one that was wanted.
    """
    seconds, slower_s = seconds_of(even), result.objective_s
    if even is None or seconds is None or slower_s is None:
        return result
    if result.stopped_by is None or result.solver not in PROVING or not (result.bound_s or 0.0) <= seconds < slower_s:
        return result
    better = replace(
        result,
        plan=even.plan,
        objective_s=seconds,
        history=(*result.history, HistoryPoint(seconds=result.seconds, objective_s=seconds, bound_s=result.bound_s)),
    )
    is_closed = better.gap is not None and better.gap <= gap + EQUAL_TIMES
    return replace(better, status=Status.OPTIMAL, stopped_by=None) if is_closed else better
