"""Solvers as bad as can be: they know something, and then never look at their budget again."""

from stagecut.planner.solvers.reference import even
from stagecut.planner.solvers.reference.brute_force import all_plans


def solve_without_end(problem, search):
    """Finds a plan and a bound first."""
    even.solve(problem, search)
    search.raise_bound(0.5 * search.best_s)
    return _never_ends()


def proves_that_there_is_no_plan(problem, search):
    """A solver that proves that there is no plan, and cannot stop to say so."""
    assert list(all_plans(problem))
    search.raise_bound(float("inf"))
    return _never_ends()


def _never_ends():
    for _ in range(10**9):
        pass
    raise AssertionError("was not interrupted")
