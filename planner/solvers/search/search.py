"""The running record of a search: best plan, bound, history."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from typing import Unpack

import numpy as np

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import HistoryPoint, OwnObjective, Result, Status, StopCause, relative_gap
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.slicing import as_stated, paying_count, searched_bound
from stagecut.planner.solvers.search.budget import Budget, RunLimits
from stagecut.planner.solvers.search.interruption import uninterrupted
from stagecut.planner.solvers.search.options import Observer, SolveOptions
from stagecut.planner.solvers.search.step_clock import StepClock


class Search(Budget):
    """Best plan and bound of one solver run within its budget; the observer is called with every improvement."""

    def __init__(
        self, problem: Problem, options: SolveOptions, *, observer: Observer | None = None, **limits: Unpack[RunLimits]
    ) -> None:
        super().__init__(options, **limits)
        self.problem = problem
        self.costs = CostModel(problem)
        self.best_plan: Plan | None = None
        self.best_s = math.inf
        self.bound_s = 0.0
        self._own_objective: OwnObjective | None = None
        self._observer = observer
        self._history: list[HistoryPoint] = []
        self._counts: dict[str, int] = {}
        self._clock = StepClock()

    def offer(self, plans: Sequence[Plan], own_objective: OwnObjective | None = None) -> list[float]:
        """Simulate plans sliced as the job says, keep the best, return their iteration times in order.

        Under `auto`, a plan that no slicing can make the best one is timed without slicing. What the planner of
        the plans minimises, `own_objective`, is kept with the best plan.
        """
        plans = [as_stated(self.problem, plan) for plan in plans]
        with self.step("simulation"):
            numbers = [self.costs.plan(plan) for plan in plans]
            times = [float(t) for t in iteration_times(numbers)]
        self.count("plans simulated", len(plans))
        for index, plan in enumerate(plans):
            sliced, times[index] = self._sliced(plan, numbers[index], times[index])
            if times[index] < self.best_s:
                self._keep(sliced, times[index], own_objective)
        return times

    def offer_possible(self, plans: Sequence[Plan | None]) -> Floats:
        """Simulate plans, see :meth:`offer`; iteration times of shape (n,), infinite where there is no plan."""
        times_s = iter(self.offer([plan for plan in plans if plan is not None]))
        return np.array([math.inf if plan is None else next(times_s) for plan in plans])

    def fork(self) -> "Search":
        """The search as a piece of work in another thread sees it; :meth:`absorb` brings back what the work found.

        The budget is the same one. The fork starts from the best plan known now, and has counts, seconds and bounds of
        its own that nobody observes.
        """
        fork = copy(self)
        fork._observer, fork._history, fork._counts, fork._clock = None, [], {}, StepClock()
        return fork

    def follow(self, other: "Search") -> None:
        """Take over the best plan of another record of the same search, if it is better."""
        if other.best_plan is not None and other.best_s < self.best_s:
            self._keep(other.best_plan, other.best_s, other._own_objective)

    def absorb(self, fork: "Search") -> None:
        """Take over what a fork found and counted since the last time."""
        for what, how_many in fork._counts.items():
            self.count(what, how_many)
        self._clock.add(fork._clock)
        fork._counts, fork._clock = {}, StepClock()
        self.follow(fork)

    def _keep(self, plan: Plan, seconds: float, own_objective: OwnObjective | None) -> None:
        with uninterrupted():
            self.best_plan, self.best_s, self._own_objective = plan, seconds, own_objective
            self._kept_for_answer_s = self._answer_s(plan)
            self._record()

    def _sliced(self, plan: Plan, numbers: PlanCosts, seconds: float) -> tuple[Plan, float]:
        """The plan with its best number of halved micro-batches, where the job leaves that open, and its time."""
        if self.problem.job.slice != AUTO or numbers.halves is None:
            return plan, seconds
        if lower_bound(numbers, any_slicing=True) >= self.best_s * (1 + EQUAL_TIMES):
            return plan, seconds
        with self.step("simulation"):
            num_sliced, seconds = paying_count(numbers, seconds)
        return (replace(plan, num_sliced=num_sliced) if num_sliced else plan), seconds

    def offer_least(self, plans: Iterable[tuple[Plan, OwnObjective]]) -> None:
        """Simulate the plan of the smallest objective, the first of several.

        It is simulated even if the iteration over further plans raises.
        """
        least: tuple[Plan, OwnObjective] | None = None
        try:
            for plan, own_objective in plans:
                if least is None or own_objective.value < least[1].value:
                    least = plan, own_objective
        finally:
            if least is not None:
                self.offer([least[0]], least[1])

    def offer_by_bound(
        self, plans: Sequence[Plan], own_objective: Callable[[Plan], OwnObjective] | None = None
    ) -> None:
        """Simulate plans in the order of their lower bounds while these are below the best time; see :meth:`offer`."""
        bounds = [searched_bound(self.costs, plan) for plan in plans]
        for index in sorted(range(len(plans)), key=bounds.__getitem__):
            if bounds[index] >= self.best_s or (self.best_plan is not None and self.out_of_budget):
                break
            self.offer([plans[index]], None if own_objective is None else own_objective(plans[index]))

    def begin_from(self, plan: Plan) -> None:
        """Start from a known plan, if it is in the search space."""
        stated = as_stated(self.problem, plan)
        if not faults(self.costs, stated):
            self.offer([stated])

    def raise_bound(self, bound_s: float) -> None:
        """Note a proof that no plan is faster; never lowers the bound."""
        if bound_s > self.bound_s:
            with uninterrupted():
                self.bound_s = bound_s
                if math.isfinite(bound_s) or self.best_plan is not None:
                    self._record()

    def count(self, what: str, how_many: int = 1) -> None:
        """Add to a counter shown with the result."""
        self._counts[what] = self._counts.get(what, 0) + how_many

    def step(self, name: str) -> AbstractContextManager[None]:
        """Charge the time inside to a step of the search; where steps nest, to the innermost."""
        return self._clock.step(name)

    @property
    def gap(self) -> float:
        """Relative gap of best plan and bound; infinite without a plan."""
        return math.inf if self.best_plan is None else relative_gap(self.best_s, self.bound_s) or 0.0

    @property
    def closed(self) -> bool:
        """Whether the gap is within the one asked for."""
        return self.best_plan is not None and self.gap <= self.options.gap + EQUAL_TIMES

    def result(self, solver: str, *, proves: bool, exhausted: bool = False, row_bound_s: float | None = None) -> Result:
        """The result so far.

        Parameters
        ----------
        proves
            Whether this solver gives bounds at all.
        exhausted
            Whether the whole search space was covered, so that no plan found means no plan exists.
        """
        cause = self.stop_cause
        if self.best_plan is None and (exhausted or self.bound_s == math.inf):
            status = Status.INFEASIBLE
        elif proves and self.closed:
            status = Status.OPTIMAL
        elif cause is StopCause.USER:
            status = Status.INTERRUPTED
        else:
            status = Status.NO_PLAN if self.best_plan is None else Status.FEASIBLE
        bound_s = min(self.bound_s, self.best_s) if proves and (self.bound_s > 0 or self.best_s == 0) else None
        return Result(
            status=status,
            solver=solver,
            seconds=self.seconds,
            plan=self.best_plan,
            objective_s=_finite(self.best_s),
            bound_s=_finite(bound_s),
            row_bound_s=row_bound_s,
            counts=tuple(sorted(self._counts.items())),
            step_seconds=self._clock.seconds,
            history=tuple(self._history),
            own_objective=self._own_objective,
            stopped_by=None if status in (Status.OPTIMAL, Status.INFEASIBLE) else cause,
            fault=self.fault,
        )

    def _record(self) -> None:
        point = HistoryPoint(
            seconds=self.seconds,
            objective_s=_finite(self.best_s),
            bound_s=_finite(min(self.bound_s, self.best_s)) if self.bound_s > 0 else None,
        )
        self._history.append(point)
        if self._observer is not None:
            self._observer(point)


def _finite(seconds: float | None) -> float | None:
    """None in place of infinity."""
    return seconds if seconds is not None and math.isfinite(seconds) else None
