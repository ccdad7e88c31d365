"""The bound that multipliers and messages prove, and the choice that goes with them."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.bounds.messages import bound_of, round_off, sweep
from stagecut.planner.choice_graphs.bounds.relaxation import Relaxation
from stagecut.planner.choice_graphs.bounds.tree import choose, eliminate
from stagecut.planner.core.numerics.arrays import Floats, Ints

_SAFE = 1 - 2.0**-50
"""Takes more than the three roundings of a product of two integers can add."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """What the relaxed problem answers at some multipliers."""

    value: float
    """The bound in the relaxation's units, as the sweeps count it: not certified."""
    choices: Ints
    """(groups,)"""
    excess: Floats
    """(moments,): usage of these choices less the limit: the slope of the bound along each multiplier."""


class Dual:
    """Bounds at multipliers m_t >= 0 on the rows of usage; messages are kept from one to the next.

    With L(m) = min over choices x of cost(x) + sum_t m_t (usage_t(x) - limit), L(m) <= cost of every legal choice.
    Multipliers are integers n_t that stand for n_t 2^-price_bits of cost per unit of usage, so that their sums over
    a node's moments are exact; the price of an option is rounded down, the constant sum_t n_t room_t up.
    """

    def __init__(self, relaxation: Relaxation, *, price_bits: int) -> None:
        self.relaxation = relaxation
        self.price_bits = price_bits
        self.message = np.zeros(int(relaxation.core.first_message[-1]))
        usage, option = relaxation.usage, relaxation.scaled.option
        piece = np.repeat(np.arange(len(usage.begin)), np.diff(usage.first_amount))
        group = np.repeat(np.arange(len(usage.first_piece) - 1), np.diff(usage.first_piece))[piece]
        place = np.arange(len(piece)) - usage.first_amount[piece] + relaxation.contracted.pairs.first_option[group]
        at = np.searchsorted(option, place)
        used = np.flatnonzero((option[np.minimum(at, len(option) - 1)] == place) & (usage.amount > 0))
        self._priced, self._amount = at[used], usage.amount[used].astype(np.float64)
        self._begin, self._end = usage.begin[piece[used]], usage.end[piece[used]]
        self._owner = np.repeat(np.arange(len(usage.first_piece) - 1), np.diff(usage.first_piece))

    def ask(self, multipliers: Ints, *, sweeps: int) -> Point:
        """Sweep forwards and backwards some times, then round off."""
        r = self.relaxation
        cost, roots = self._costs(multipliers)
        state_cost = self._of_core(cost)
        bound = 0.0
        for _ in range(sweeps):
            sweep(r.core, state_cost, self.message, forward=True)
            bound = sweep(r.core, state_cost, self.message, forward=False)
        states = round_off(r.core, state_cost, self.message)
        choices = self._choices(states, cost)
        value = bound + roots - float(self._constant(multipliers))
        return Point(value=value, choices=choices, excess=self._excess(choices))

    def certified(self, multipliers: Ints, message: Floats) -> int | None:
        """The lower bound in the graph's own units that these numbers prove; None if floats might have rounded."""
        cost, roots = self._costs(multipliers)
        core = bound_of(self.relaxation.core, self._of_core(cost), message)
        # costs are at least 0, so what was added up never was larger than what came out
        if max(float(cost.max(initial=0.0)), roots) > 2.0**52 or core == -np.inf:
            return None
        # totals are integers, so a bound in smaller units may be rounded up
        return _rounded_up(int(roots) + int(core) - self._constant(multipliers), -self.relaxation.scaled.scale_bits)

    def _costs(self, multipliers: Ints) -> tuple[Floats, float]:
        """Costs of options with prices, and what elimination added to them; the least costs of whole trees."""
        r = self.relaxation
        total = np.concatenate(([0], np.cumsum(multipliers)))
        price = (total[self._end] - total[self._begin]).astype(np.float64)
        scaled_price = np.floor(np.ldexp(self._amount * price * _SAFE, r.scaled.scale_bits - self.price_bits))
        cost = r.scaled.cost + np.bincount(self._priced, scaled_price, len(r.scaled.cost))
        return cost, eliminate(r.tree, r.scaled.first_option, cost)

    def _of_core(self, cost: Floats) -> Floats:
        """(states,): costs of the options of the core."""
        r = self.relaxation
        first, num = r.scaled.first_option[r.core_node], np.diff(r.core.first_state)
        ours: Floats = cost[np.repeat(first - r.core.first_state[:-1], num) + np.arange(r.core.first_state[-1])]
        return ours

    def _constant(self, multipliers: Ints) -> int:
        """sum_t m_t room_t, rounded up."""
        used = np.flatnonzero(multipliers)
        room = self.relaxation.usage.room[used].tolist()
        total = sum(n * r for n, r in zip(multipliers[used].tolist(), room, strict=True))
        return _rounded_up(total, self.relaxation.scaled.scale_bits - self.price_bits)

    def _choices(self, states: Ints, cost: Floats) -> Ints:
        r = self.relaxation
        choices = np.zeros(len(r.scaled.first_option) - 1, dtype=np.int64)
        choices[r.core_node] = states
        choose(r.tree, r.scaled.first_option, cost, choices)
        return r.option_numbers(choices)

    def _excess(self, choices: Ints) -> Floats:
        usage = self.relaxation.usage
        amount = usage.amount[usage.first_amount[:-1] + choices[self._owner]]
        change = np.zeros(usage.num_moments + 1, dtype=np.int64)
        np.add.at(change, usage.begin, amount)
        np.subtract.at(change, usage.end, amount)
        return (np.cumsum(change)[:-1] - usage.room).astype(np.float64)


def _rounded_up(value: int, bits: int) -> int:
    """The least integer of at least value 2^bits."""
    return value << bits if bits >= 0 else -(-value >> -bits)
