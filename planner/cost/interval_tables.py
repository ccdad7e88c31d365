"""The cheapest sharding of every interval of layers on one mesh: shortest paths through the states between layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.operators.strategy import LayerStrategy
from stagecut.planner.sharding.layer_costs import LARGEST, Cost
from stagecut.planner.sharding.layer_tables import LayerTable


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalTable:
    """Stages [i, j) of L layers at some prices; infinite or zero where j <= i."""

    value_s: Floats
    """What is minimised, shape (prices, L + 1, L + 1)."""
    costs: Floats
    """Shape (prices, L + 1, L + 1, costs)."""


def interval_table(layers: Sequence[LayerTable], firsts: Sequence[LayerTable]) -> IntervalTable:
    """The least values over all states, and what they cost.

    For all starts at once: V_j+1[i, s'] = min over s of V_j[i, s] + W_j[s, s'], with W the table of layer j. A stage
    begins with the table of its first layer, from `firsts`, and ends in any state.
    """
    size, num_prices = len(layers) + 1, len(layers[0].value_s)
    value_s = np.full((num_prices, size, size), np.inf)
    costs = np.zeros((num_prices, size, size, len(Cost)))
    begun = {id(first): _begun(first)[0] for first in firsts}
    reached, prices = begun[id(firsts[0])], np.arange(num_prices)[:, None]
    for start, (layer, first) in enumerate(zip(layers, firsts, strict=True)):
        if start > 0:
            extended, fresh = _extended(reached, layer)[0], begun[id(first)]
            reached = np.concatenate((extended[0], fresh[0]), axis=1), np.concatenate((extended[1], fresh[1]), axis=1)
        best, rows = reached[0].argmin(axis=2), np.arange(start + 1)
        value_s[:, : start + 1, start + 1] = reached[0][prices, rows, best]
        costs[:, : start + 1, start + 1] = reached[1][prices, rows, best]
    return IntervalTable(value_s=value_s, costs=costs)


def cheapest_strategies(first: LayerTable, others: Sequence[LayerTable], *, price: int) -> tuple[LayerStrategy, ...]:
    """The strategies of the layers of one stage at a price, an index."""
    reached, way = _begun(first)
    ways = [way[price, 0]]
    for layer in others:
        reached, way = _extended(reached, layer)
        ways.append(way[price, 0])
    state, strategies = int(reached[0][price, 0].argmin()), list[LayerStrategy]()
    for layer, before in zip(reversed([first, *others]), reversed(ways), strict=True):
        strategies.append(layer.strategy(price, int(before[state]), state))
        state = int(before[state])
    return tuple(reversed(strategies))


Reached = tuple[Floats, Floats]
"""Values and costs of stages by price, start and state behind; shape (prices, starts, states), and alike with costs."""


def _begun(first: LayerTable) -> tuple[Reached, Ints]:
    """Stages of one layer, and the best states before it."""
    num_prices, num_states = first.value_s.shape[:2]
    nothing = np.zeros((num_prices, 1, num_states)), np.zeros((num_prices, 1, num_states, len(Cost)))
    return _extended(nothing, first)


def _extended(reached: Reached, layer: LayerTable) -> tuple[Reached, Ints]:
    """Stages with one more layer, and the best states before it."""
    value_s, sums = reached
    candidates = value_s[..., None] + layer.value_s[:, None]
    way = candidates.argmin(axis=2)
    num_prices, num_starts, num_states = way.shape
    prices, starts = np.arange(num_prices)[:, None, None], np.arange(num_starts)[:, None]
    before, own = sums[prices, starts, way], layer.costs[prices, way, np.arange(num_states)]
    extended = before + own
    extended[..., LARGEST:] = np.maximum(before[..., LARGEST:], own[..., LARGEST:])
    return (candidates.min(axis=2), extended), way
