"""The running record of a search: best plan, bound, clock, history."""

import math
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from stagecut.planner.core.errors import BadInputError, FaultWarning, in_one_line
from stagecut.planner.core.job import AUTO
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import (
    Fault,
    HistoryPoint,
    OwnObjective,
    Result,
    Shortage,
    Status,
    StopCause,
    relative_gap,
)
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.slicing import as_stated, paying_count
from stagecut.planner.solvers.search.interruption import uninterrupted
from stagecut.planner.solvers.search.options import SolveOptions, StopCheck
from stagecut.planner.solvers.search.resident_memory import MemoryWatch, room_bytes
from stagecut.planner.solvers.search.step_clock import StepClock

ROUNDING = 5e-10
"""Relative error up to which two times count as equal: sums of the same terms in another order."""

MARGIN, LARGEST_MARGIN_S = 0.1, 0.1
"""Of the time there is, and in seconds: so long before its end solvers are asked to stop, to return by then."""
MOST_ANSWER = 0.5
"""Share of the time there is that may be kept for the answer."""

Observer = Callable[[HistoryPoint], None]


class Search:
    """Best plan and bound of one solver run.

    Parameters
    ----------
    observer
        Called with every improvement of plan or bound.
    cancelled
        Set by the caller, from any thread, to stop the search; the best plan is kept.
    spent_s
        Of the time limit, before the search began.
    answer_s
        How long the caller will take to tell of a plan, which the time limit is to hold as well.

    Raises
    ------
    UnsupportedError
        If the options limit the memory, and this system does not tell how much is in use.
    """

    def __init__(
        self,
        problem: Problem,
        options: SolveOptions,
        *,
        observer: Observer | None = None,
        cancelled: threading.Event | None = None,
        spent_s: float = 0.0,
        answer_s: Callable[[Plan], float] = lambda _plan: 0.0,
    ) -> None:
        self.problem = problem
        self.options = options
        self.costs = CostModel(problem)
        self.best_plan: Plan | None = None
        self.best_s = math.inf
        self.bound_s = 0.0
        self._own_objective: OwnObjective | None = None
        self._observer = observer
        self._cancelled = cancelled or threading.Event()
        limit_bytes = options.memory_limit_bytes
        self._memory = None if limit_bytes is None else MemoryWatch(limit_bytes)
        self._ran_out_of_memory = False
        self._fault: Fault | None = None
        self._started = time.perf_counter()
        self._limit_s = math.inf if options.time_limit_s is None else max(0.0, options.time_limit_s - spent_s)
        self._answer_s, self._kept_for_answer_s = answer_s, 0.0
        self._history: list[HistoryPoint] = []
        self._counts: dict[str, int] = {}
        self._clock = StepClock()

    def offer(self, plans: Sequence[Plan], own_objective: OwnObjective | None = None) -> list[float]:
        """Simulate plans as the job slices them, keep the best, return their iteration times in order.

        Under `auto` a plan that cannot become the best one, however sliced, is timed without slicing.

        Parameters
        ----------
        own_objective
            What the planner of these plans minimises, kept with the plan.
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

    def _keep(self, plan: Plan, seconds: float, own_objective: OwnObjective | None) -> None:
        with uninterrupted():
            self.best_plan, self.best_s, self._own_objective = plan, seconds, own_objective
            self._kept_for_answer_s = self._answer_s(plan)
            self._record()

    def _sliced(self, plan: Plan, numbers: PlanCosts, seconds: float) -> tuple[Plan, float]:
        """The plan with as many micro-batches halved as pay, where the job leaves that open, and its time."""
        if self.problem.job.slice != AUTO or numbers.halves is None:
            return plan, seconds
        if lower_bound(numbers, any_slicing=True) >= self.best_s * (1 + ROUNDING):
            return plan, seconds
        with self.step("simulation"):
            num_sliced, seconds = paying_count(numbers, seconds)
        return (replace(plan, num_sliced=num_sliced) if num_sliced else plan), seconds

    def offer_with(self, plan: Plan, own_objective: OwnObjective) -> float:
        """Simulate a plan of a planner that minimises something else, and keep what it minimises with the plan."""
        (seconds,) = self.offer([plan], own_objective)
        return seconds

    def offer_least(self, plans: Iterable[tuple[Plan, OwnObjective]]) -> None:
        """Simulate the one plan of which its planner minimises the least, the first of several such.

        It is simulated even where looking for further plans ends in an error.
        """
        least: tuple[Plan, OwnObjective] | None = None
        try:
            for plan, own_objective in plans:
                if least is None or own_objective.value < least[1].value:
                    least = plan, own_objective
        finally:
            if least is not None:
                self.offer_with(*least)

    def offer_by_bound(
        self, plans: Sequence[Plan], own_objective: Callable[[Plan], OwnObjective] | None = None
    ) -> None:
        """Simulate plans in the order of their lower bounds, while these are below the best time.

        Parameters
        ----------
        own_objective
            What their planner minimises, see :meth:`offer_with`.
        """
        bounds = [lower_bound(self.costs.plan(plan), any_slicing=True) for plan in plans]
        for index in sorted(range(len(plans)), key=lambda index: bounds[index]):
            if bounds[index] >= self.best_s or (self.best_plan is not None and self.out_of_budget):
                break
            if own_objective is None:
                self.offer([plans[index]])
            else:
                self.offer_with(plans[index], own_objective(plans[index]))

    def begin_from(self, plan: Plan) -> None:
        """Take a plan known from elsewhere as the best one so far, if the search space has it."""
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
        """Count the seconds inside for a step of the search; of nested steps the inner one counts."""
        return self._clock.step(name)

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return time.perf_counter() - self._started

    @property
    def seconds_left(self) -> float:
        """Until the search is to stop because of the time limit; infinite without one, never negative."""
        return max(0.0, self._until_limit_s - self._margin_s)

    @property
    def _until_limit_s(self) -> float:
        """Until the search must have stopped."""
        return self._limit_s - min(self._kept_for_answer_s, MOST_ANSWER * self._limit_s) - self.seconds

    @property
    def _margin_s(self) -> float:
        return min(MARGIN * self._limit_s, LARGEST_MARGIN_S)

    def patience_s(self) -> float | None:
        """How long a solver may still take to return; None while there is no reason to stop."""
        match self.stop_cause:
            case None:
                return None
            case StopCause.TIME:
                return max(0.0, self._until_limit_s)
            case StopCause.USER | StopCause.FAULT:
                return LARGEST_MARGIN_S
            case StopCause.MEMORY:
                return 0.0

    def stop_after(self, seconds: float) -> StopCheck:
        """A check that says stop once the budget is spent, or that many seconds from now."""
        deadline_s = self.seconds + seconds
        return lambda: self.out_of_budget or self.seconds > deadline_s

    @property
    def cancelled(self) -> bool:
        """Whether the caller asked to stop."""
        return self._cancelled.is_set()

    @property
    def out_of_budget(self) -> bool:
        """Whether to stop now: cancelled, out of time or memory, or after a fault."""
        return self.stop_cause is not None

    @property
    def stop_cause(self) -> StopCause | None:
        """Why to stop now; None if there is no reason."""
        if self.cancelled:
            return StopCause.USER
        if self._fault is not None:
            return StopCause.FAULT
        if self._too_much_memory:
            return StopCause.MEMORY
        return StopCause.TIME if self.seconds_left <= 0 else None

    @contextmanager
    def surviving(self) -> Iterator[None]:
        """Whatever fails inside ends the search as a limit would: best plan and bound are kept.

        The result tells the fault, and a :class:`~planner.core.errors.FaultWarning` does so at once. Where the
        system gives no more memory, that is a limit reached. What the user gave wrong goes through.
        """
        try:
            yield
        except (BadInputError, FaultWarning):
            raise
        except MemoryError:
            self._ran_out_of_memory = True
        except Exception as fault:
            reason = in_one_line(fault)
            if self._fault is None:
                self._fault = Fault(reason=reason, traceback="".join(traceback.format_exception(fault)))
            warnings.warn(f"the search ended early: {reason}", FaultWarning, stacklevel=1)

    @property
    def room_bytes(self) -> float:
        """What may still be allocated; see :func:`planner.solvers.search.resident_memory.room_bytes`."""
        return room_bytes(self.options.memory_limit_bytes)

    @property
    def _too_much_memory(self) -> bool:
        return self._ran_out_of_memory or (self._memory is not None and self._memory.exceeded)

    @property
    def gap(self) -> float:
        """Relative gap of best plan and bound; infinite without a plan."""
        return math.inf if self.best_plan is None else relative_gap(self.best_s, self.bound_s) or 0.0

    @property
    def closed(self) -> bool:
        """Whether the gap is within the one asked for."""
        return self.best_plan is not None and self.gap <= self.options.gap + ROUNDING

    def result(
        self,
        solver: str,
        *,
        proves: bool,
        exhausted: bool = False,
        row_bound_s: float | None = None,
        shortages: tuple[Shortage, ...] = (),
    ) -> Result:
        """The result as of now.

        Parameters
        ----------
        proves
            Whether this solver gives bounds at all.
        exhausted
            Whether the whole search space was covered, so that having no plan means there is none.
        """
        cause = self.stop_cause
        status = self._status(proves=proves, exhausted=exhausted, cause=cause)
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
            shortages=shortages,
            own_objective=self._own_objective,
            stopped_by=None if status in (Status.OPTIMAL, Status.INFEASIBLE) else cause,
            fault=self._fault,
        )

    def _status(self, *, proves: bool, exhausted: bool, cause: StopCause | None) -> Status:
        if self.best_plan is None and (exhausted or self.bound_s == math.inf):
            return Status.INFEASIBLE
        if proves and self.closed:
            return Status.OPTIMAL
        if cause is StopCause.USER:
            return Status.INTERRUPTED
        return Status.FEASIBLE if self.best_plan is not None else Status.NO_PLAN

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
    """Nothing in place of infinity."""
    return seconds if seconds is not None and math.isfinite(seconds) else None
