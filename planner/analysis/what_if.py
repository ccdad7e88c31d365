"""How much faster the best plan would be with one more unit of a resource."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result, Status, relative_gap
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.solvers.diagnosis.extra_units import Unit, WhatIf, plan_in, what_ifs

UNCHANGED = "nothing more"
"""Name of the first row: the cluster as it is."""
AnyResult = TypeVar("AnyResult", Result, WaveResult)
Solve = Callable[[str, Problem, Plan | None], Result]
"""Search for a plan: name of the search, problem, plan to start from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOutcome:
    """The best plan found with one more unit, next to the plan without."""

    what: str
    unit: str
    """Empty for the cluster as it is."""
    planned_s: float
    """Iteration time of the plan that is explained."""
    result: Result

    @property
    def saved(self) -> float | None:
        """Share of the iteration time that the best plan found saves; negative where it is slower, None without one."""
        found_s = self.result.objective_s
        if found_s is None:
            return None
        return (self.planned_s - found_s) / self.planned_s if self.planned_s > 0 else 0.0

    @property
    def saved_at_most(self) -> float | None:
        """Largest share that any plan could save; None where nothing is proven."""
        return relative_gap(self.planned_s, self.result.bound_s)


def searches(
    problem: Problem, units: Sequence[Unit], unchanged: AnyResult, search: Callable[[WhatIf], AnyResult | None]
) -> Iterator[tuple[str, str, AnyResult | None]]:
    """What was changed, the unit, and what was found: first without a change, then with one more of each unit.

    Ends early at the first search that is interrupted. None stands for a search that makes no sense.
    """
    if unchanged.status is Status.INTERRUPTED:
        return
    yield UNCHANGED, "", unchanged
    for what_if in what_ifs(problem, tuple(units)):
        found = search(what_if)
        if found is not None and found.status is Status.INTERRUPTED:
            return
        yield what_if.name, str(what_if.unit), found


def what_if_outcomes(
    plan_file: PlanFile, iteration_s: float, units: Sequence[Unit], solve: Solve
) -> Iterator[WhatIfOutcome]:
    """The plan itself, then the best plan found with one more of each unit.

    A plan that was not proven optimal is first searched for again on the cluster as it is, so that what a
    longer search finds is not credited to a unit.
    """
    problem, plan = plan_file.problem, plan_file.plan
    is_optimal = plan_file.certificate.status is Status.OPTIMAL
    result = certified_result(plan_file, iteration_s) if is_optimal else solve(UNCHANGED, problem, plan)
    best = result.plan or plan

    def search(what_if: WhatIf) -> Result:
        return solve(what_if.name, what_if.problem, plan_in(what_if.problem, problem, best))

    for what, unit, found in searches(problem, units, result, search):
        assert found is not None
        yield WhatIfOutcome(what=what, unit=unit, planned_s=iteration_s, result=found)


def certified_result(plan_file: PlanFile, iteration_s: float) -> Result:
    """The result that a plan file claims, without a search."""
    certificate = plan_file.certificate
    return Result(
        status=certificate.status,
        solver=certificate.solver,
        seconds=0.0,
        plan=plan_file.plan,
        objective_s=iteration_s,
        bound_s=certificate.bound_s,
    )
