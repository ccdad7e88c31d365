"""How fast an even split of the model is: the plan that people make without a planner."""

import math
import threading
from dataclasses import replace

from stagecut.planner.core.problem import Problem
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

EVEN = "even"
"""Name of the solver."""


def even_split_s(problem: Problem, *, time_limit_s: float, cancelled: threading.Event | None = None) -> float | None:
    """Iteration time of equal layer counts on all devices; infinite where that does not fit, None if time ran out."""
    plain = replace(problem, job=replace(problem.job, sharding=None))
    even = run(plain, EVEN, SolveOptions(time_limit_s=time_limit_s), cancelled=cancelled)
    if even.stopped_by is not None:
        return None
    return math.inf if even.objective_s is None else even.objective_s
