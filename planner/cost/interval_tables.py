"""The cheapest sharding of every interval of layers on one mesh: shortest paths through the states between layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.strategy import LayerStrategy
from stagecut.planner.sharding.layer_costs import LARGEST, Cost
from stagecut.planner.sharding.layer_tables import LayerTable


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalTable:
    """Stages [i, j) of L layers; infinite or zero where j <= i."""

    value_s: Floats
    """What is minimised, shape (L + 1, L + 1)."""
    costs: Floats
    """Shape (costs, L + 1, L + 1)."""


def interval_table(layers: Sequence[LayerTable], firsts: Sequence[LayerTable]) -> IntervalTable:
    """The least values over all states, and what they cost.

    For all starts at once: V_j+1[i, s'] = min over s of V_j[i, s] + W_j[s, s'], with W the table of layer j. A stage
    begins with the table of its first layer, from `firsts`, and ends in any state.
    """
    size = len(layers) + 1
    value_s, costs = np.full((size, size), np.inf), np.zeros((len(Cost), size, size))
    reached = _nothing(len(layers[0].value_s))
    for stop, (layer, first) in enumerate(zip(layers, firsts, strict=True), start=1):
        extended, _ = _extended(reached, layer)
        begun, _ = _extended(_anywhere(first), first)
        reached = np.concatenate((extended[0], begun[0])), np.concatenate((extended[1], begun[1]))
        best, rows = reached[0].argmin(axis=1), np.arange(stop)
        value_s[:stop, stop] = reached[0][rows, best]
        costs[:, :stop, stop] = reached[1][rows, best].T
    return IntervalTable(value_s=value_s, costs=costs)


def cheapest_strategies(first: LayerTable, others: Sequence[LayerTable]) -> tuple[LayerStrategy, ...]:
    """The strategies of the layers of one stage."""
    reached, layers, ways = _anywhere(first), [first, *others], []
    for layer in layers:
        reached, way = _extended(reached, layer)
        ways.append(way[0])
    state, strategies = int(reached[0][0].argmin()), list[LayerStrategy]()
    for layer, way in zip(reversed(layers), reversed(ways), strict=True):
        strategies.append(layer.strategy(int(way[state]), state))
        state = int(way[state])
    return tuple(reversed(strategies))


Reached = tuple[Floats, Floats]
"""Values and costs of stages by start and state behind them, shape (starts, states) and (starts, states, costs)."""


def _nothing(num_states: int) -> Reached:
    return np.zeros((0, num_states)), np.zeros((0, num_states, len(Cost)))


def _anywhere(first: LayerTable) -> Reached:
    num_states = len(first.value_s)
    return np.zeros((1, num_states)), np.zeros((1, num_states, len(Cost)))


def _extended(reached: Reached, layer: LayerTable) -> tuple[Reached, Ints]:
    """Stages with one more layer, and the best states before it."""
    value_s, sums = reached
    candidates = value_s[:, :, None] + layer.value_s
    way = candidates.argmin(axis=1)
    before = np.take_along_axis(sums, way[:, :, None], axis=1)
    own = layer.costs[way, np.arange(layer.value_s.shape[1])]
    extended = before + own
    extended[..., LARGEST:] = np.maximum(before[..., LARGEST:], own[..., LARGEST:])
    return (np.take_along_axis(candidates, way[:, None, :], axis=1)[:, 0], extended), way
