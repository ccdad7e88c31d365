"""Any solver on a search space for a framework: one case after the other, see :mod:`..search.cases`."""

import math
from collections.abc import Callable, Sequence

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.solvers.exact.fluid_bound import fluid_bounds
from stagecut.planner.solvers.search.cases import Case
from stagecut.planner.solvers.search.search import Search


def solve_cases(
    solve: Callable[[Problem, Search], Result],
    name: str,
    cases: Sequence[Case],
    search: Search,
    *,
    proves: bool,
    is_quick: bool,
) -> Result:
    """The best plan of all cases, those that may hold the fastest first; the bound is that of the weakest case.

    Cases whose fluid bound is no better than the best plan are left out. A quick solver is faster than those bounds.
    """
    floors_s: dict[Case, float] = {}
    for case in () if is_quick else cases:
        floors_s[case] = min(fluid_bounds(case.costs, case.problem.variants).tolist(), default=math.inf)
        if search.out_of_budget:
            break
    proven_s = dict.fromkeys(cases, 0.0) | floors_s
    refusal: UnsupportedError | None = None
    for case in sorted(cases, key=proven_s.__getitem__):
        if search.out_of_budget or proven_s[case] >= search.best_s:
            break
        with case.inside(search) as own:
            try:
                solve(case.problem, own)
            except UnsupportedError as error:  # a planner that knows other cases only
                refusal = error
            proven_s[case] = max(proven_s[case], own.bound_s)
    if refusal is not None and search.best_plan is None:
        raise refusal
    if proves:
        search.raise_bound(min(proven_s.values(), default=math.inf))
    return search.result(name, proves=proves, exhausted=proves and search.bound_s == math.inf)
