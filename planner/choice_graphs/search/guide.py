"""Multipliers on usage and choices that go with them: where walks begin, and what usage costs them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np

from stagecut.planner.choice_graphs.bounds.messages import Core, bound_of, round_off, sweep
from stagecut.planner.choice_graphs.search.prices import prices_of
from stagecut.planner.choice_graphs.search.problem import Problem
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled

FIRST_SWEEPS, SWEEPS = 20, 3
KEPT = 0.7
"""Share of the averaged excess that a step keeps."""
FIRST_LENGTH, LEAST_LENGTH = 0.5, 1e-4
"""A step aims at this share of the way from the best value to the cost of the best choice."""
FAR, PATIENCE, SHORTER = 4.0, 15, 0.7
"""After a value so many times farther below the best, or so many steps in vain, the share falls, and the best
multipliers are returned to."""


DEAREST = 2**46
"""What costs more counts as this much: floats then hold all sums exactly, and a lower cost keeps a bound valid."""
NUM_STRETCHES = 8
"""Multipliers are given to the worst moment of each of so many stretches of time; the others follow mostly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What the relaxed problem prefers at some multipliers."""

    choice: Ints
    """(groups,); it may exceed the limit."""
    multiplier: Floats
    """(moments,): cost per unit of usage."""
    bound: int | None
    """No legal choice costs less; None if that is not better than before, or not certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    value: float
    multiplier: Floats
    excess: Floats
    message: Floats

    @classmethod
    def none(cls) -> "_Point":
        empty = np.zeros(0)
        return cls(value=-np.inf, multiplier=empty, excess=empty, message=empty)


@dataclass(kw_only=True, eq=False)
class Guide:
    """Subgradient steps on multipliers, around message passing on the pairs.

    With L(m) = min over choices of cost + sum_t m_t (usage_t - room_t), approximately, a step goes along the averaged
    excess of usage, as far as would raise L to the best value so far and a rise more if L were linear (Polyak's step
    with a target level that adapts).
    """

    problem: Problem
    _core: Core = field(init=False)
    _message: Floats = field(init=False)
    _room: Floats = field(init=False)

    def __post_init__(self) -> None:
        problem = self.problem
        owner = np.repeat(np.arange(len(problem.first) - 1), np.diff(problem.first_link))
        num_options = np.diff(problem.first)
        self._core = Core(
            first_state=problem.first,
            first_arc=problem.first_link,
            num_before=np.bincount(owner[problem.neighbour < owner], minlength=len(num_options)),
            tail=problem.neighbour,
            reverse=problem.back,
            first_pair=np.append(problem.first_pair, len(problem.pair_cost)),
            pair_cost=np.minimum(problem.pair_cost, DEAREST).astype(np.float64),
            first_message=np.concatenate([[0], np.cumsum(num_options[owner])]),
        )
        self._message = np.zeros(self._core.first_message[-1])
        self._room = problem.room.astype(np.float64)

    def run(self, *, upper: Callable[[], int | None], goes_on: Callable[[Suggestion], bool]) -> None:
        """Step until told to stop, or there is no rise to hope for; every step makes a suggestion.

        Parameters
        ----------
        upper
            Cost of the best choice known: no target is above.
        """
        multiplier, sweeps, waited, length = np.zeros(len(self._room)), FIRST_SWEEPS, 0, FIRST_LENGTH
        best, slope = _Point.none(), np.zeros(0)
        active = np.zeros(len(self._room), dtype=np.bool_)
        while length > LEAST_LENGTH:
            multiplier = _exact(multiplier)
            value, choice, cost = self._ask(multiplier, sweeps)
            bound = self._certified(multiplier, cost) if value > best.value else None
            if not goes_on(Suggestion(choice=choice, multiplier=multiplier, bound=bound)):
                return
            excess = self._excess(choice)
            slope = excess if sweeps == FIRST_SWEEPS else KEPT * slope + (1 - KEPT) * excess
            sweeps, waited = SWEEPS, waited + 1
            if value > best.value:
                best = _Point(value=value, multiplier=multiplier, excess=excess, message=self._message.copy())
                waited = 0
            known = upper()
            rise = length * (abs(best.value) + 1 if known is None else known - best.value)
            if waited > PATIENCE or value < best.value - FAR * rise:
                self._message[:] = best.message
                value, multiplier, slope = best.value, best.multiplier, best.excess
                length, waited, rise = length * SHORTER, 0, rise * SHORTER
            if rise <= 0:
                return
            active[_worst_moments(slope)] = True
            multiplier = _step(multiplier, np.where(active, slope, 0.0), best.value + rise - value)

    def _ask(self, multiplier: Floats, sweeps: int) -> tuple[float, Ints, Floats]:
        """L, what it prefers, and costs with prices."""
        cost = np.minimum(self.problem.cost + prices_of(self.problem, multiplier), DEAREST).astype(np.float64)
        value = 0.0
        for _ in range(sweeps):
            sweep(self._core, cost, self._message, forward=True)
            value = sweep(self._core, cost, self._message, forward=False)
        return value - float(multiplier @ self._room), round_off(self._core, cost, self._message), cost

    def _certified(self, multiplier: Floats, cost: Floats) -> int | None:
        """L from below, in integers: a legal choice pays sum_t m_t room_t for its usage at most."""
        value = bound_of(self._core, cost, self._message)
        if not np.isfinite(value):
            return None
        used = np.flatnonzero(multiplier)
        room = self.problem.room[used].tolist()
        paid = sum((Fraction(m) * r for m, r in zip(multiplier[used].tolist(), room, strict=True)), Fraction())
        return int(value) - math.ceil(paid)

    def _excess(self, choice: Ints) -> Floats:
        change = np.zeros(len(self._room) + 1)
        _add_usage(self.problem, choice, change)
        excess: Floats = np.cumsum(change)[:-1] - self._room
        return excess


def _exact(multiplier: Floats) -> Floats:
    """Multipliers rounded so that floats hold all their sums exactly: multiples of one power of two, 2^50 at most."""
    unit = 50 - math.frexp(float(multiplier.sum()))[1]
    exact: Floats = np.ldexp(np.rint(np.ldexp(multiplier, unit)), -unit)
    return exact


def _worst_moments(excess: Floats) -> Ints:
    """The moments of the largest excess in some stretches of time, where it is one."""
    starts = np.unique(np.linspace(0, len(excess), NUM_STRETCHES, endpoint=False, dtype=np.int64))
    worst = np.array(
        [a + excess[a:b].argmax() for a, b in pairwise([*starts.tolist(), len(excess)]) if a < b], dtype=np.int64
    )
    return worst[excess[worst] > 0]


def _step(multiplier: Floats, slope: Floats, rise: float) -> Floats:
    useful = np.where((multiplier <= 0) & (slope < 0), 0.0, slope)
    steep = float(useful @ useful)
    return multiplier if steep == 0 else np.maximum(0.0, multiplier + rise / steep * useful)


@compiled
def _add_usage(problem: Problem, choice: Ints, change: Floats) -> None:
    for group in range(len(choice)):
        for piece in range(problem.first_piece[group], problem.first_piece[group + 1]):
            amount = problem.amount[problem.first_amount[piece] + choice[group]]
            change[problem.begin[piece]] += amount
            change[problem.end[piece]] -= amount
