"""The running record of a search for virtual workers: best plan, bound, why nothing fits."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Unpack

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status, StopCause
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.virtual_workers.wave_result import WavePoint, WaveResult
from stagecut.planner.cost.waves.wave_costs import WaveCostModel, WaveCosts
from stagecut.planner.simulator.waves.steady import steady_state
from stagecut.planner.solvers.search.budget import Budget, RunLimits
from stagecut.planner.solvers.search.interruption import uninterrupted
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.step_clock import StepClock

Hosts = tuple[tuple[str, ...], ...]
"""Of the devices of each worker, in alphabetical order."""
WaveObserver = Callable[[WavePoint], None]
"""Called with every improvement of plan or bound."""


FIRST_WAVES = 16
"""Waves played with D = 0 first; plans that are far from what the best one reached in them are played no further."""
HOPELESS, HOPELESS_DRIFTING = 0.99, 1.0
"""How far: a part of that, with D = 0 and with a larger D. The latter takes seconds to play, since workers drift apart
for D waves and no state returns, and hardly changes which plan is faster."""


class WaveSearch(Budget):
    """Best plan and bound of one run within its budget."""

    def __init__(
        self,
        problem: Problem,
        options: SolveOptions,
        *,
        observer: WaveObserver | None = None,
        **limits: Unpack[RunLimits],
    ) -> None:
        super().__init__(options, **limits)
        self.problem = problem
        self.model = WaveCostModel(problem)
        self.best_plan: WavePlan | None = None
        self.best = 0.0
        """Simulated samples per second of the best plan."""
        self.bound = math.inf
        """No plan has more samples per second."""
        self.reason = ""
        """Why nothing fits."""
        self._observer, self._history = observer, list[WavePoint]()
        self.best_of: dict[Hosts, tuple[float, WavePlan]] = {}
        """By the hosts of all workers' devices, the best plan and its samples per second."""
        self._known: dict[WavePlan, float] = {}
        self._given_up: dict[WavePlan, float] = {}
        self._first_waves_of_best = 0.0
        self._counts: dict[str, int] = {}
        self._clock = StepClock()

    def offer(self, plan: WavePlan, *, in_full: bool = False) -> float:
        """Simulate a plan, keep it if it is the best; its samples per second.

        Unless asked for in full, plans whose first waves are far from those of the best plan are given up; what these
        return is lower than the best, and an estimate.
        """
        if plan in self._given_up and not in_full:
            return self._given_up[plan]
        if plan not in self._known:
            self.count("plans simulated")
            with self.step("simulation"):
                costs = self.model.plan(plan)
                first = 0.0 if in_full else _first_waves(costs)
                share = HOPELESS_DRIFTING if plan.clock_distance else HOPELESS
                if not in_full and first < share * self._first_waves_of_best:
                    self._given_up[plan] = min(first, share * self.best)
                    return self._given_up[plan]
                self._known[plan] = steady_state(costs).samples_per_s
        samples_per_s = self._known[plan]
        hosts = tuple(sorted(tuple(sorted(map(_host, worker.devices))) for worker in plan.workers))
        if samples_per_s > self.best_of.get(hosts, (0.0, plan))[0]:
            self.best_of[hosts] = samples_per_s, plan
        if samples_per_s > self.best * (1 + EQUAL_TIMES):
            first = _first_waves(self.model.plan(plan))
            with uninterrupted():
                self.best_plan, self.best, self._first_waves_of_best = plan, samples_per_s, first
                self._report()
        return samples_per_s

    def lower_bound_to(self, samples_per_s: float) -> None:
        """Note a proof that no plan is faster."""
        if samples_per_s < self.bound:
            with uninterrupted():
                self.bound = samples_per_s
                self._report()

    def count(self, what: str, how_many: int = 1) -> None:
        """Add to a counter shown with the result."""
        self._counts[what] = self._counts.get(what, 0) + how_many

    def step(self, name: str) -> AbstractContextManager[None]:
        """Charge the time inside to a step of the search."""
        return self._clock.step(name)

    @property
    def num_workers(self) -> int | None:
        """As stated by the job; None if it is left open."""
        waves = self.problem.job.waves
        return None if waves is None or waves.num_workers == AUTO else waves.num_workers

    @property
    def target(self) -> float:
        """What a plan has to exceed to matter."""
        return self.best / (1 - self.options.gap)

    @property
    def closed(self) -> bool:
        """Whether the gap is within the one asked for."""
        return self.best_plan is not None and self.bound <= self.target * (1 + EQUAL_TIMES)

    def result(self, solver: str) -> WaveResult:
        """The result so far; with a bound of 0 there is no plan."""
        cause = self.stop_cause
        if self.best_plan is None and self.bound <= 0:
            status = Status.INFEASIBLE
        elif self.closed:
            status = Status.OPTIMAL
        elif cause is StopCause.USER:
            status = Status.INTERRUPTED
        else:
            status = Status.NO_PLAN if self.best_plan is None else Status.FEASIBLE
        found = self.best_plan is not None
        return WaveResult(
            status=status,
            solver=solver,
            seconds=self.seconds,
            plan=self.best_plan,
            samples_per_s=self.best if found else None,
            bound_samples_per_s=max(self.bound, self.best) if 0 < self.bound < math.inf else None,
            counts=tuple(sorted(self._counts.items())),
            step_seconds=self._clock.seconds,
            history=tuple(self._history),
            stopped_by=None if status in (Status.OPTIMAL, Status.INFEASIBLE) else cause,
            fault=self.fault,
            reason=self.reason if status is Status.INFEASIBLE else "",
        )

    def _report(self) -> None:
        point = WavePoint(
            seconds=self.seconds,
            samples_per_s=self.best if self.best_plan is not None else None,
            bound_samples_per_s=self.bound if math.isfinite(self.bound) else None,
        )
        self._history.append(point)
        if self._observer is not None:
            self._observer(point)


def _first_waves(costs: WaveCosts) -> float:
    """Samples per second of the first waves with D = 0."""
    plan = replace(costs.plan, clock_distance=0)
    return steady_state(replace(costs, plan=plan), most_waves=FIRST_WAVES).samples_per_s


def _host(device: str) -> str:
    return device.rpartition("/")[0]
