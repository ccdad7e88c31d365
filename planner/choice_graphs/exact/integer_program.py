"""The mixed-integer program solved by HiGHS, its answers checked with integers."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.program import Pairs, Rows, affordable, all_pairs, strong_program
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.moments import find_moments
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import MIP_BOUND
from stagecut.planner.solvers.search.highs import IntegerAnswer, SolveOutcome, solve_integer
from stagecut.planner.solvers.search.options import StopCheck

LARGEST_COST = 1e6
"""Costs are divided so that none is larger: HiGHS compares with absolute tolerances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """The best choice found and a bound on all legal ones."""

    choices: Ints | None
    cost: int | None
    bound: int | None
    """No legal choice costs less; None if there is no legal choice at all."""
    complete: bool
    """Whether HiGHS ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """How long HiGHS may search, and for what."""

    seconds: float = math.inf
    """From `since_s` on, for all programs together."""
    since_s: float = field(default_factory=time.monotonic)
    stop: StopCheck = lambda: False
    threads: int = 1
    seed: int = 0
    gap: float = 0.0
    on_choices: Callable[[Ints], None] = lambda _choices: None
    """Called with every legal choice that improves."""
    on_bound: Callable[[int], None] = lambda _bound: None
    """Called with every better bound."""

    @property
    def seconds_left(self) -> float:
        """For the next program."""
        return max(0.0, self.seconds - (time.monotonic() - self.since_s))


def solve_program(graph: ChoiceGraph, limits: ProgramLimits, *, start: Ints | None = None) -> Proven:
    """Solve to the gap; again where HiGHS took an illegal choice for a legal one, or costs for too small to count.

    Parameters
    ----------
    start
        A legal choice to begin with, which also rules out all options and pairs that are too dear to beat it.
    """
    return _Rounds(graph, limits, start).solve()


NONE_LEGAL = Proven(choices=None, cost=None, bound=None, complete=True)


class _Rounds:
    def __init__(self, graph: ChoiceGraph, limits: ProgramLimits, start: Ints | None) -> None:
        self._graph, self._limits = graph, limits
        self._moments, self._pairs = find_moments(graph), all_pairs(graph)
        self._best: Ints | None = None
        self._cost: int | None = None
        self._bound = 0
        self._refused: list[Ints] = []
        if start is not None:
            self._offer(start)

    def solve(self) -> Proven:
        """Round after round, until one is the last."""
        while True:
            known, num_refused = self._cost, len(self._refused)
            options, pairs = affordable(self._graph, self._pairs, known)
            if self._best is None and not np.logical_or.reduceat(options, self._graph.first_option[:-1]).all():
                return NONE_LEGAL
            costs = np.concatenate((self._graph.cost[options], self._graph.pair_cost[pairs.position]))
            scale = max(1.0, float(costs.max(initial=0)) / LARGEST_COST)
            answer = self._round(options, pairs, scale)
            if answer.columns is not None:
                self._offer_columns(answer.columns)
            if answer.outcome is SolveOutcome.INFEASIBLE and self._best is None:
                return NONE_LEGAL
            self._raise_bound(scale, answer.bound)
            complete = answer.outcome is not SolveOutcome.STOPPED
            if not complete or not self._again(known, num_refused, scale):
                return Proven(choices=self._best, cost=self._cost, bound=self._bound, complete=complete)

    def _round(self, options: Bools, pairs: Pairs, scale: float) -> IntegerAnswer:
        refusals = tuple(_refusal(each) for each in self._refused)
        best = self._best
        return solve_integer(
            strong_program(self._graph, self._moments, options=options, pairs=pairs, scale=scale, families=refusals),
            time_limit_s=self._limits.seconds_left,
            stop=self._limits.stop,
            on_solution=self._offer_columns,
            on_bound=partial(self._raise_bound, scale),
            threads=self._limits.threads,
            seed=self._limits.seed,
            gap=self._limits.gap,
            start=None if best is None else self._columns(best, pairs.first, pairs.second),
        )

    def _again(self, known: int | None, num_refused: int, scale: float) -> bool:
        """Whether another round may bring more: an illegal choice was in the way, or large costs blurred small ones."""
        if len(self._refused) > num_refused:
            return True
        return scale > 1 and self._cost is not None and (known is None or 10 * self._cost < known)

    def _columns(self, choices: Ints, first: Ints, second: Ints) -> Floats:
        chosen = np.zeros(len(self._graph.cost))
        chosen[self._graph.first_option[:-1] + choices] = 1.0
        return np.concatenate((chosen, chosen[first] * chosen[second]))

    def _offer_columns(self, columns: Floats) -> None:
        self._offer(decode(self._graph, columns))

    def _offer(self, choices: Ints) -> None:
        evaluation = evaluate(self._graph, choices)
        if evaluation.faults:
            chosen = self._graph.first_option[:-1] + choices
            if not any(np.array_equal(chosen, known) for known in self._refused):
                self._refused.append(chosen)
        elif self._cost is None or evaluation.cost < self._cost:
            self._best, self._cost = choices, evaluation.cost
            self._limits.on_choices(choices)

    def _raise_bound(self, scale: float, scaled: float) -> None:
        if not math.isfinite(scaled):
            return
        bound_int = max(0, math.ceil(scale * (scaled - MIP_BOUND * abs(scaled))))
        bound_int = bound_int if self._cost is None else min(bound_int, self._cost)
        if bound_int > self._bound:
            self._bound = bound_int
            self._limits.on_bound(bound_int)


def decode(graph: ChoiceGraph, columns: Floats) -> Ints:
    """The choices of a solution: by node the option with the largest s."""
    first = graph.first_option.tolist()
    return np.array([np.argmax(columns[first[v] : first[v + 1]]) for v in range(graph.num_nodes)], dtype=np.int64)


def _refusal(chosen: Ints) -> Rows:
    """Sum of s_p over the options of one choice <= nodes - 1: that choice is excluded, and no other."""
    return Rows(
        row=np.zeros(len(chosen), dtype=np.int64),
        column=chosen,
        value=np.ones(len(chosen)),
        lower=np.array([-np.inf]),
        upper=np.array([len(chosen) - 1.0]),
    )
