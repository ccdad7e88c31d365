"""The running record of a search on a choice graph: best choice, bound, history."""

import threading
from collections.abc import Callable
from typing import Unpack

from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.result import ChoicePoint, ChoiceResult
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.tolerances import RECOMPUTED
from stagecut.planner.core.result import Status, StopCause, relative_gap
from stagecut.planner.solvers.search.budget import Budget, RunLimits
from stagecut.planner.solvers.search.interruption import uninterrupted
from stagecut.planner.solvers.search.options import SolveOptions

ChoiceObserver = Callable[[ChoicePoint], None]
"""Called with every improvement of choice or bound, from any thread."""


class ChoiceSearch(Budget):
    """Best choice and bound of one run within its budget; may be told from several threads."""

    def __init__(
        self,
        graph: ChoiceGraph,
        options: SolveOptions,
        *,
        observer: ChoiceObserver | None = None,
        **limits: Unpack[RunLimits],
    ) -> None:
        super().__init__(options, **limits)
        self.graph = graph
        self.objective: int | None = None
        self.bound = 0
        self.reason: str | None = None
        """Why no choice is legal, once that is proven."""
        self._choices: tuple[int, ...] | None = None
        self._peak_usage: int | None = None
        self._observer = observer
        self._history: list[ChoicePoint] = []
        self._lock = threading.Lock()

    def offer(self, choices: Ints) -> None:
        """Compute anew what a choice costs, and keep it if it is legal and the best so far."""
        evaluation = evaluate(self.graph, choices)
        if evaluation.faults:
            return
        with uninterrupted(), self._lock:
            if self.objective is None or evaluation.cost < self.objective:
                self._choices, self._peak_usage = tuple(choices.tolist()), evaluation.peak_usage
                self.objective = evaluation.cost
                self._record()

    def raise_bound(self, bound: int) -> None:
        """Note a proof that no legal choice costs less; never lowers the bound."""
        with uninterrupted(), self._lock:
            if bound > self.bound:
                self.bound = bound
                self._record()

    @property
    def closed(self) -> bool:
        """Whether the gap is within the one asked for."""
        gap = None if self.objective is None else relative_gap(self.objective, self.bound)
        return gap is not None and gap <= self.options.gap + RECOMPUTED

    def result(self) -> ChoiceResult:
        """The result so far."""
        status, cause = self._status(), self.stop_cause
        return ChoiceResult(
            status=status,
            seconds=self.seconds,
            choices=self._choices,
            objective=self.objective,
            bound=self.bound if self.objective is None else min(self.bound, self.objective),
            peak_usage=self._peak_usage,
            overflow=self.reason,
            stopped_by=None if status in (Status.OPTIMAL, Status.INFEASIBLE) else cause,
            fault=self.fault,
            history=tuple(self._history),
        )

    def _status(self) -> Status:
        if self.objective is None and self.reason is not None:
            return Status.INFEASIBLE
        if self.closed:
            return Status.OPTIMAL
        if self.stop_cause is StopCause.USER:
            return Status.INTERRUPTED
        return Status.NO_PLAN if self.objective is None else Status.FEASIBLE

    def _record(self) -> None:
        bound = self.bound if self.objective is None else min(self.bound, self.objective)
        self._history.append(ChoicePoint(seconds=self.seconds, objective=self.objective, bound=bound))
        if self._observer is not None:
            self._observer(self._history[-1])
