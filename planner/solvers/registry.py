"""Solvers by name. Each is imported only when it runs, since some load HiGHS or PuLP."""

import difflib
import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Unpack, cast

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result, Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.search.budget import RunLimits
from stagecut.planner.solvers.search.cases import cases_of
from stagecut.planner.solvers.search.interruption import interruptible
from stagecut.planner.solvers.search.options import Observer, RowChoice, SolveOptions
from stagecut.planner.solvers.search.refusals import require_equal_sizes, require_whole_stages
from stagecut.planner.solvers.search.search import Search

Solver = Callable[[Problem, Search], Result]

SOLVERS = {
    "milp": ".exact.milp:solve",
    "dp": ".exact.dp:solve",
    "greedy": ".heuristic.greedy:solve",
    "even": ".reference.even:solve",
    "brute-force": ".reference.brute_force:solve",
    "textbook-milp": ".reference.textbook_milp:solve",
    "textbook-milp-cbc": ".reference.textbook_milp:solve_with_cbc",
    "pipedream": ".papers.pipedream:solve",
    "dapple": ".papers.dapple:solve",
    "autopipe": ".papers.autopipe:solve",
    "autopipe-h": ".papers.autopipe_h:solve",
    "piper": ".papers.piper:solve",
    "alpa": ".papers.alpa:solve",
    "hetpipe": ".papers.hetpipe:solve",
    "megatron-even": ".papers.megatron_even:solve",
    "deepspeed-parameters": ".papers.deepspeed_parameters:solve",
    "umpipe": ".papers.umpipe.solver:solve",
    "metis-like": ".papers.metis_like:solve",
    "annealing": ".heuristic.annealing:solve",
}
"""Name -> `module:function`, modules relative to this package."""
PROVING = frozenset({"milp", "dp", "brute-force", "textbook-milp", "textbook-milp-cbc"})
"""Solvers that give a bound; the others only give plans."""
EXPLAINING = frozenset({"milp", "dp"})
"""Solvers whose proof that nothing fits is followed by a search for what is short; the rest are references."""
SHARDING = ("milp", "dp", "greedy", "brute-force")
"""Solvers that divide the operators of a stage as the job allows; the others refuse jobs that allow it."""
AUTO = "auto"
"""Stands for the solver that :func:`solver_for` picks."""
MOST_STATES = 100
"""Up to this many vectors of opened hosts per class `dp` is fast."""


def solver_for(name: str, problem: Problem, *, rows: RowChoice = RowChoice.ALL) -> str:
    """The name of a solver, with `auto` resolved for the problem and the rows.

    That is `dp` for the shared rows alone if it supports all schedules and has few labels; otherwise `milp`, which
    with all rows proves more about faster plans, whatever the size: see the table in docs/solver.md.
    """
    if name != AUTO:
        return name
    states = math.prod(server.count + 1 for server in problem.cluster.servers)
    supported = Schedule.INTERLEAVED not in problem.job.schedules
    return "dp" if rows is RowChoice.SHARED and supported and states <= MOST_STATES else "milp"


def load(solver_name: str) -> Solver:
    """Import a solver.

    Raises
    ------
    BadInputError
        If there is none of that name.
    """
    if solver_name not in SOLVERS:
        near = difflib.get_close_matches(solver_name, SOLVERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BadInputError(f"unknown solver {solver_name!r}{hint} (solvers: {', '.join(SOLVERS)})")
    module, function = SOLVERS[solver_name].split(":")
    return cast(Solver, getattr(importlib.import_module(module, __package__), function))


def run(
    problem: Problem,
    solver_name: str,
    options: SolveOptions,
    *,
    observer: Observer | None = None,
    start: Plan | None = None,
    **limits: Unpack[RunLimits],
) -> Result:
    """Solve a problem with the named solver.

    Whatever fails on the way, the result has the best plan and bound found by then and says what happened: see
    :meth:`stagecut.planner.solvers.search.budget.Budget.surviving`.

    Parameters
    ----------
    observer
        Called with every improvement of plan or bound.
    start
        A plan to begin from; ignored if it is not in the search space.
    limits
        See :class:`stagecut.planner.solvers.search.budget.RunLimits`.

    Raises
    ------
    BadInputError
        If there is no solver of that name, if it cannot express the problem, or if the options ask
        for something that this system does not have.
    """
    load(solver_name)
    if solver_name in PROVING and (solver_name != "milp" or options.rows is RowChoice.SHARED):
        require_equal_sizes(problem, solver_name)
    if solver_name not in SHARDING:
        require_whole_stages(problem, solver_name, SHARDING)
    search = Search(problem, options, observer=observer, **limits)

    def work() -> Result:
        if start is not None:
            search.begin_from(start)
        result = _solved(problem, solver_name, search)
        explain = result.status is Status.INFEASIBLE and solver_name in EXPLAINING
        return _explained(result, search) if explain else result

    result: Result | None = None
    with search.surviving():
        result = interruptible(work, search.patience_s)
    return result or search.result(solver_name, proves=True)


def _solved(problem: Problem, solver_name: str, search: Search) -> Result:
    solve, cases = load(solver_name), cases_of(problem)
    if cases is None or solver_name == "milp":  # which looks at all cases at once
        return solve(problem, search)
    # Imported here: it loads HiGHS.
    from stagecut.planner.solvers.case_by_case import solve_cases

    is_quick = solver_name == "even"
    return solve_cases(solve, solver_name, cases, search, proves=solver_name in PROVING, is_quick=is_quick)


def _explained(result: Result, search: Search) -> Result:
    """The result with the reasons why no plan fits, as far as a few seconds find them."""
    # Imported here: it loads HiGHS.
    from stagecut.planner.solvers.diagnosis.shortage import DIAGNOSIS_S, find_shortages

    with search.surviving():
        shortages = find_shortages(search.problem, stop=search.stop_after(DIAGNOSIS_S))
        result = replace(result, shortages=shortages)
    return replace(result, seconds=search.seconds, fault=search.fault)
