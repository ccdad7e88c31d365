"""What it costs that a framework has to run the plan: the same search without that."""

import threading
from dataclasses import dataclass, replace

from stagecut.planner.core.problem import Problem
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

TIME_LIMIT_S = 10.0
"""Most seconds of the search: its bound is there in tenths of a second, and better plans come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrestricted:
    """The search space without a framework, as far as a short search by `milp` got with it."""

    objective_s: float | None
    """The fastest plan found; None if there is none."""
    bound_s: float | None
    """No plan is faster."""


def without_framework(
    problem: Problem, options: SolveOptions, *, seconds: float, cancelled: threading.Event
) -> Unrestricted:
    """Search the space of a problem without its framework, for so many seconds at most."""
    free = replace(problem, job=replace(problem.job, framework=None))
    result = run(free, "milp", replace(options, time_limit_s=min(seconds, TIME_LIMIT_S)), cancelled=cancelled)
    return Unrestricted(objective_s=result.objective_s, bound_s=result.bound_s)
