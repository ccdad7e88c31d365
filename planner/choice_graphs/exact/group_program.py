"""The mixed-integer program of a contracted graph, whose rows of usage are added where answers exceed the limit.

Of thousands of moments a few bind, but each row has an entry for nearly every option. So the program begins without
rows; the worst moments of what its linear relaxation uses are added until none is exceeded, then the same with the
integer program. Fewer rows allow more choices: every bound on the way holds for the whole.
"""

import math
from functools import partial

import numpy as np

from stagecut.planner.choice_graphs.contraction.contract import ContractedGraph
from stagecut.planner.choice_graphs.contraction.pieces import UsagePieces
from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.integer_program import LARGEST_COST, ProgramLimits, Proven, decode
from stagecut.planner.choice_graphs.exact.program import Pairs, Rows, affordable, all_pairs, strong_program
from stagecut.planner.choice_graphs.moments import Moments
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import MIP_BOUND
from stagecut.planner.solvers.search.highs import LinearProgram, SolveOutcome, solve_integer, solve_linear

STRETCHES = 10
"""Rows are added for the worst moment of each of so many stretches of time."""
EXCEEDED = 1e-6
"""What a linear relaxation may use beyond the room, as a share of it."""
MOST_RELAXATIONS = 20


def solve_groups(
    contracted: ContractedGraph, pieces: UsagePieces, limits: ProgramLimits, *, start: Ints | None = None
) -> Proven:
    """Solve to the gap; choices, costs and the start are those of the groups."""
    return _Rounds(contracted, pieces, limits, start).solve()


class _Rounds:
    def __init__(
        self, contracted: ContractedGraph, pieces: UsagePieces, limits: ProgramLimits, start: Ints | None
    ) -> None:
        self._graph, self._pieces, self._limits = contracted.pairs, pieces, limits
        self._best: Ints | None = None
        self._cost: int | None = None
        self._bound = 0
        self._pairs = all_pairs(self._graph)
        self._moments: set[int] = set()
        if start is not None:
            self._offer(start)

    def solve(self) -> Proven:
        """Relaxations, then programs, until an answer keeps the limit at every moment."""
        self._relax()
        while not self._limits.stop():
            program, scale, pairs = self._program()
            answer = solve_integer(
                program,
                time_limit_s=self._limits.seconds_left,
                stop=self._limits.stop,
                on_solution=lambda columns: self._offer(decode(self._graph, columns)),
                on_bound=partial(self._raise, scale=scale),
                threads=self._limits.threads,
                seed=self._limits.seed,
                gap=self._limits.gap,
                start=None if self._best is None else self._columns(self._best, pairs),
            )
            if answer.outcome is SolveOutcome.INFEASIBLE:
                return Proven(choices=self._best, cost=self._cost, bound=self._cost, complete=True)
            self._raise(answer.bound, scale=scale)
            added = answer.columns is not None and self._take(decode(self._graph, answer.columns))
            if answer.outcome is SolveOutcome.STOPPED or not added:
                complete = answer.outcome is not SolveOutcome.STOPPED
                return Proven(choices=self._best, cost=self._cost, bound=self._bound, complete=complete)
        return Proven(choices=self._best, cost=self._cost, bound=self._bound, complete=False)

    def _relax(self) -> None:
        """Add the rows that linear relaxations exceed."""
        for _ in range(MOST_RELAXATIONS):
            program, _, _ = self._program()
            answer = solve_linear(program, time_limit_s=self._limits.seconds_left, stop=self._limits.stop)
            weight = np.clip(answer.columns[: len(self._graph.cost)], 0.0, 1.0)
            if answer.outcome is not SolveOutcome.OPTIMAL or not self._add(self._excess(weight), EXCEEDED):
                return

    def _program(self) -> tuple[LinearProgram, float, Pairs]:
        options, pairs = affordable(self._graph, self._pairs, self._cost)
        costs = np.concatenate((self._graph.cost[options], self._graph.pair_cost[pairs.position]))
        scale = max(1.0, float(costs.max(initial=0)) / LARGEST_COST)
        rows = usage_rows(self._pieces, self._graph.first_option, sorted(self._moments))
        program = strong_program(
            self._graph, _no_moments(self._graph.num_nodes), options=options, pairs=pairs, scale=scale, families=(rows,)
        )
        return program, scale, pairs

    def _columns(self, choices: Ints, pairs: Pairs) -> Floats:
        chosen = self._weight(choices).astype(np.float64)
        return np.concatenate((chosen, chosen[pairs.first] * chosen[pairs.second]))

    def _weight(self, choices: Ints) -> Ints:
        chosen = np.zeros(len(self._graph.cost), dtype=np.int64)
        chosen[self._graph.first_option[:-1] + choices] = 1
        return chosen

    def _excess(self, weight: Ints | Floats) -> Floats:
        load = usage_of(self._pieces, self._graph.first_option, weight)
        return (load - self._pieces.room) / np.maximum(self._pieces.room, 1)

    def _take(self, choices: Ints) -> bool:
        """Keep an answer that is legal; whether it shows rows that are missing."""
        self._offer(choices)
        return self._add(self._excess(self._weight(choices)), 0.0)

    def _add(self, excess: Floats, most: float) -> bool:
        """Add the worst moments; whether any is new."""
        parts = [part for part in np.array_split(np.arange(len(excess)), STRETCHES) if len(part)]
        worst = {int(part[excess[part].argmax()]) for part in parts}
        new = {moment for moment in worst if excess[moment] > most} - self._moments
        self._moments |= new
        return bool(new)

    def _offer(self, choices: Ints) -> None:
        """Keep a legal choice that is better."""
        if self._excess(self._weight(choices)).max(initial=0.0) > 0:
            return
        evaluation = evaluate(self._graph, choices)
        if not evaluation.faults and (self._cost is None or evaluation.cost < self._cost):
            self._best, self._cost = choices, evaluation.cost
            self._limits.on_choices(choices)

    def _raise(self, scaled: float, *, scale: float) -> None:
        if not math.isfinite(scaled):
            return
        rounded = max(0, math.ceil(scale * (scaled - MIP_BOUND * abs(scaled))))
        rounded = rounded if self._cost is None else min(rounded, self._cost)
        if rounded > self._bound:
            self._bound = rounded
            self._limits.on_bound(rounded)


def usage_of(pieces: UsagePieces, first_option: Ints, weight: Ints | Floats) -> Ints | Floats:
    """Usage above the least at every moment (moments,), of options with weights (options,)."""
    _, option = _entries(pieces, first_option, np.ones(len(pieces.begin), dtype=np.bool_))
    total = np.concatenate(([0], np.cumsum(pieces.amount * weight[option])))
    used = np.diff(total[pieces.first_amount])
    change = np.zeros(pieces.num_moments + 1, dtype=used.dtype)
    np.add.at(change, pieces.begin, used)
    np.subtract.at(change, pieces.end, used)
    load: Ints | Floats = np.cumsum(change)[:-1]
    return load


def usage_rows(pieces: UsagePieces, first_option: Ints, moments: list[int]) -> Rows:
    """Sum over the options of the groups: amount s_p <= room, divided by the largest amount, at each of the moments."""
    row, column, value, upper = [], [], [], []
    for at, moment in enumerate(moments):
        amount, option = _entries(pieces, first_option, (pieces.begin <= moment) & (moment < pieces.end))
        largest = max(1, int(amount.max(initial=0)))
        used = amount > 0
        row.append(np.full(int(used.sum()), at))
        column.append(option[used])
        value.append(amount[used] / largest)
        upper.append(float(pieces.room[moment]) / largest)
    none = np.zeros(0, dtype=np.int64)
    return Rows(
        row=np.concatenate((none, *row)),
        column=np.concatenate((none, *column)),
        value=np.concatenate((np.zeros(0), *value)),
        lower=np.full(len(moments), -np.inf),
        upper=np.array(upper),
    )


def _entries(pieces: UsagePieces, first_option: Ints, kept: Bools) -> tuple[Ints, Ints]:
    """Amounts of some pieces, and their options."""
    group = np.searchsorted(pieces.first_piece, np.arange(len(pieces.begin)), side="right") - 1
    length = np.diff(pieces.first_amount)
    option = np.arange(len(pieces.amount)) + np.repeat(first_option[group] - pieces.first_amount[:-1], length)
    chosen = np.repeat(kept, length)
    return pieces.amount[chosen], option[chosen]


def _no_moments(num_nodes: int) -> Moments:
    none, zero = np.zeros(0, dtype=np.int64), np.zeros(num_nodes, dtype=np.int64)
    return Moments(time=none, room=none, begin=zero, end=zero, least_usage=zero)
