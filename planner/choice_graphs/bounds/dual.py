"""The bound that multipliers and messages prove, and the choice that goes with them."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.bounds.messages import bound_of, round_off, sweep
from stagecut.planner.choice_graphs.bounds.relaxation import Relaxation
from stagecut.planner.choice_graphs.bounds.tree import choose, eliminate
from stagecut.planner.core.arrays import Floats, Ints

_SAFE = 1 - 2.0**-50
"""Takes more than the three roundings of a product of two integers can add."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """What the relaxed problem answers at some multipliers."""

    value: float
    """The bound in the relaxation's units, as the sweeps count it: not certified."""
    choices: Ints
    """(nodes,): remaining options, numbered within each node."""
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
        num_options = np.diff(relaxation.first_option)
        self._begin = np.repeat(relaxation.moments.begin, num_options)
        self._end = np.repeat(relaxation.moments.end, num_options)
        self._usage = relaxation.extra_usage.astype(np.float64)

    def ask(self, multipliers: Ints, *, sweeps: int) -> Point:
        """Sweep forwards and backwards some times, then round off."""
        r = self.relaxation
        cost, state_cost, roots = self._costs(multipliers)
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
        cost, state_cost, roots = self._costs(multipliers)
        # costs are at least 0, so what the elimination added up stayed below what it ended with
        core = bound_of(self.relaxation.core, state_cost, message)
        if max(float(cost.max()), roots, float(state_cost.max(initial=0.0))) > 2.0**52 or core == -np.inf:
            return None
        # totals are integers, so a bound in smaller units may be rounded up
        return _rounded_up(int(roots) + int(core) - self._constant(multipliers), -self.relaxation.scale_bits)

    def _costs(self, multipliers: Ints) -> tuple[Floats, Floats, float]:
        """Costs with prices that elimination left on options and on states, and the least costs of whole trees."""
        r = self.relaxation
        total = np.concatenate(([0], np.cumsum(multipliers)))
        price = (total[self._end] - total[self._begin]).astype(np.float64)
        cost = r.cost + np.floor(np.ldexp(self._usage * price * _SAFE, r.scale_bits - self.price_bits))
        roots = eliminate(r.tree, r.first_option, cost)
        members = np.add.reduceat(cost[r.member], r.first_member[:-1]) if len(r.member) else np.zeros(0)
        return cost, r.core_cost + members, roots

    def _constant(self, multipliers: Ints) -> int:
        """sum_t m_t room_t, rounded up."""
        used = np.flatnonzero(multipliers)
        room = self.relaxation.moments.room[used].tolist()
        total = sum(n * r for n, r in zip(multipliers[used].tolist(), room, strict=True))
        return _rounded_up(total, self.relaxation.scale_bits - self.price_bits)

    def _choices(self, states: Ints, cost: Floats) -> Ints:
        r = self.relaxation
        choices = np.zeros(r.num_nodes, dtype=np.int64)
        rows = r.core.first_state[:-1] + states
        members = [r.member[a:b] for a, b in zip(r.first_member[rows], r.first_member[rows + 1], strict=True)]
        option = np.concatenate([np.zeros(0, np.int64), *members])
        node = np.searchsorted(r.first_option, option, side="right") - 1
        choices[node] = option - r.first_option[node]
        choose(r.tree, r.first_option, cost, choices)
        return choices

    def _excess(self, choices: Ints) -> Floats:
        r = self.relaxation
        moments = r.moments
        usage = r.extra_usage[r.first_option[:-1] + choices]
        change = np.zeros(moments.num_moments + 1, dtype=np.int64)
        np.add.at(change, moments.begin, usage)
        np.subtract.at(change, moments.end, usage)
        return (np.cumsum(change)[:-1] - moments.room).astype(np.float64)


def _rounded_up(value: int, bits: int) -> int:
    """The least integer of at least value 2^bits."""
    return value << bits if bits >= 0 else -(-value >> -bits)
