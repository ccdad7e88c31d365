"""Solvers by name. None is imported before it runs: some of them load HiGHS or PuLP."""

import difflib
import importlib
import threading
from collections.abc import Callable
from typing import cast

from planner.core.errors import BadInputError
from planner.core.problem import Problem
from planner.core.result import Result
from planner.solvers.options import SolveOptions
from planner.solvers.search import Observer, Search

Solver = Callable[[Problem, Search], Result]

SOLVERS = {
    "milp": "planner.solvers.milp:solve",
    "dp": "planner.solvers.dp:solve",
    "greedy": "planner.solvers.greedy:solve",
    "even": "planner.solvers.even:solve",
    "brute-force": "planner.solvers.brute_force:solve",
    "textbook-milp": "planner.solvers.textbook_milp:solve",
    "textbook-milp-cbc": "planner.solvers.textbook_milp:solve_with_cbc",
}
"""Name -> `module:function`."""


def load(solver_name: str) -> Solver:
    """Import a solver.

    Raises
    ------
    BadInputError
        If there is none of that name.
    """
    if solver_name not in SOLVERS:
        raise BadInputError(_unknown(solver_name))
    module, function = SOLVERS[solver_name].split(":")
    return cast(Solver, getattr(importlib.import_module(module), function))


def run(
    problem: Problem,
    solver_name: str,
    options: SolveOptions,
    *,
    observer: Observer | None = None,
    cancelled: threading.Event | None = None,
) -> Result:
    """Solve a problem with the named solver.

    Parameters
    ----------
    observer
        Called with every improvement of plan or bound.
    cancelled
        Set by the caller, from any thread, to stop the search; the best plan is kept.

    Raises
    ------
    BadInputError
        If there is no solver of that name, or if it cannot express the problem.
    """
    solve = load(solver_name)
    return solve(problem, Search(problem, options, observer=observer, cancelled=cancelled))


def _unknown(solver_name: str) -> str:
    near = difflib.get_close_matches(solver_name, SOLVERS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown solver {solver_name!r}{hint} (solvers: {', '.join(SOLVERS)})"
