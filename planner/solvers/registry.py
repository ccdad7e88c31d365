"""Solvers by name. None is imported before it runs: some of them load HiGHS or PuLP."""

import difflib
import importlib
import math
import threading
from collections.abc import Callable
from typing import cast

from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.search.interruption import interruptible
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions
from stagecut.planner.solvers.search.search import Observer, Search

Solver = Callable[[Problem, Search], Result]

SOLVERS = {
    "milp": "stagecut.planner.solvers.exact.milp:solve",
    "dp": "stagecut.planner.solvers.exact.dp:solve",
    "greedy": "stagecut.planner.solvers.heuristic.greedy:solve",
    "even": "stagecut.planner.solvers.reference.even:solve",
    "brute-force": "stagecut.planner.solvers.reference.brute_force:solve",
    "textbook-milp": "stagecut.planner.solvers.reference.textbook_milp:solve",
    "textbook-milp-cbc": "stagecut.planner.solvers.reference.textbook_milp:solve_with_cbc",
    "pipedream": "stagecut.planner.solvers.papers.pipedream:solve",
    "dapple": "stagecut.planner.solvers.papers.dapple:solve",
    "autopipe": "stagecut.planner.solvers.papers.autopipe:solve",
    "autopipe-h": "stagecut.planner.solvers.papers.autopipe_h:solve",
    "piper": "stagecut.planner.solvers.papers.piper:solve",
    "alpa": "stagecut.planner.solvers.papers.alpa:solve",
    "hetpipe": "stagecut.planner.solvers.papers.hetpipe:solve",
    "megatron-even": "stagecut.planner.solvers.papers.megatron_even:solve",
    "deepspeed-parameters": "stagecut.planner.solvers.papers.deepspeed_parameters:solve",
    "metis-like": "stagecut.planner.solvers.papers.metis_like:solve",
    "annealing": "stagecut.planner.solvers.heuristic.annealing:solve",
}
"""Name -> `module:function`."""
PROVING = frozenset({"milp", "dp", "brute-force", "textbook-milp", "textbook-milp-cbc"})
"""Those that give a bound; the others give plans only."""
AUTO = "auto"
"""Stands for the solver that :func:`choose` picks."""
MOST_STATES = 100
"""Vectors of opened hosts per class up to which `dp` is quick."""


def choose(problem: Problem, rows: RowChoice) -> str:
    """`dp` where only the shared rows count, it knows all schedules and its labels are few; else `milp`.

    With all rows `milp` proves more about faster plans, whatever the size: the table in docs/solver.md.
    """
    states = math.prod(server.count + 1 for server in problem.cluster.servers)
    known = Schedule.INTERLEAVED not in problem.job.schedules
    return "dp" if rows is RowChoice.SHARED and known and states <= MOST_STATES else "milp"


def solver_for(name: str, problem: Problem, *, rows: RowChoice = RowChoice.ALL) -> str:
    """The name of a solver; `auto` is settled for the problem and the rows that count."""
    return choose(problem, rows) if name == AUTO else name


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
    start: Plan | None = None,
    spent_s: float = 0.0,
    answer_s: Callable[[Plan], float] = lambda _plan: 0.0,
) -> Result:
    """Solve a problem with the named solver.

    Whatever fails on the way, the result has the best plan and the bound by then, and says what happened: see
    :meth:`planner.solvers.search.search.Search.surviving`.

    Parameters
    ----------
    observer
        Called with every improvement of plan or bound.
    cancelled
        Set by the caller, from any thread, to stop the search; the best plan is kept.
    start
        A plan to begin from; passed over where it is none of the search space.
    spent_s
        Of the time limit, before this call.
    answer_s
        How long the caller will take to tell of a plan, which the time limit is to hold as well.

    Raises
    ------
    BadInputError
        If there is no solver of that name, if it cannot express the problem, or if the options ask
        for something that this system does not have.
    """
    solve = load(solver_name)
    search = Search(problem, options, observer=observer, cancelled=cancelled, spent_s=spent_s, answer_s=answer_s)

    def work() -> Result:
        if start is not None:
            search.begin_from(start)
        return solve(problem, search)

    result: Result | None = None
    with search.surviving():
        result = interruptible(work, search.patience_s)
    return result or search.result(solver_name, proves=True)


def _unknown(solver_name: str) -> str:
    near = difflib.get_close_matches(solver_name, SOLVERS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown solver {solver_name!r}{hint} (solvers: {', '.join(SOLVERS)})"
