"""Costs of options and of pairs in seconds and bytes, put together as a graph of whole numbers."""

from collections.abc import Sequence
from math import floor, isinf

import numpy as np

from stagecut.planner.choice_graphs.building import LARGEST_TOTAL, build
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.options import OptionCosts

MOST_LEVELS = 8
"""Working memory counts as the next of so many levels."""
FINEST_UNIT_S = 1e-12
PairTable = tuple[tuple[int, int], Floats]
"""Two nodes, and seconds for each pair of their options."""


def unit_of(seconds: Sequence[Floats]) -> float:
    """Seconds of a cost of 1: no cost looks impossible then, and the dearest of all add up to less than 2^61."""
    dearest = [float(np.max(each, initial=0.0, where=np.isfinite(each))) for each in seconds]
    return max(FINEST_UNIT_S, 10 * max(dearest) / IMPOSSIBLE, 2 * sum(dearest) / LARGEST_TOTAL)


def assembled(
    case: ShardingCase, costs: Sequence[OptionCosts], pairs: Sequence[PairTable], *, unit_s: float
) -> ChoiceGraph:
    """The graph of nodes with these costs, and one node more: the levels of working memory.

    A level uses that much memory, and excludes the options that need more.
    """
    levels = _levels(costs)
    tables = [(ends, _units(seconds, unit_s)) for ends, seconds in pairs]
    tables += [((node, len(costs)), table) for node, own in enumerate(costs) for table in _exclusions(own, levels)]
    usages = [*(_whole_bytes(own.held_bytes) for own in costs), _whole_bytes(levels)]
    units = [*(_units(own.seconds, unit_s) for own in costs), np.zeros(len(levels), dtype=np.int64)]
    return build(
        name=case.model.name,
        first_option=np.cumsum([0, *map(len, usages)]),
        cost=np.concatenate(units),
        usage=np.concatenate(usages),
        start=np.zeros(len(usages), dtype=np.int64),
        stop=np.ones(len(usages), dtype=np.int64),
        ends=np.array([ends for ends, _ in tables], dtype=np.int64).reshape(-1, 2),
        first_pair=np.cumsum([0, *(table.size for _, table in tables)]),
        pair_cost=np.concatenate([np.zeros(0, dtype=np.int64), *(table.ravel() for _, table in tables)]),
        usage_limit=LARGEST_TOTAL if isinf(case.device.memory_bytes) else floor(case.device.memory_bytes),
    )


def _levels(costs: Sequence[OptionCosts]) -> Floats:
    """Levels of working memory, rising: none below what some operator needs in any case."""
    least = max(float(own.working_bytes.min()) for own in costs)
    above = np.unique(np.concatenate([own.working_bytes for own in costs]))
    above = above[above >= least]
    if len(above) > MOST_LEVELS:
        above = above[np.linspace(0, len(above) - 1, MOST_LEVELS).astype(np.int64)]
    return above


def _exclusions(own: OptionCosts, levels: Floats) -> list[Ints]:
    """The table of the options and the levels; none if every level suffices."""
    if own.working_bytes.max() <= levels[0]:
        return []
    return [np.where(own.working_bytes[:, None] <= levels, 0, IMPOSSIBLE)]


def _units(seconds: Floats, unit_s: float) -> Ints:
    finite = np.isfinite(seconds)
    rounded = np.rint(np.where(finite, seconds, 0.0) / unit_s).astype(np.int64)
    return np.where(finite, rounded, IMPOSSIBLE)


def _whole_bytes(num_bytes: Floats) -> Ints:
    return np.ceil(num_bytes).astype(np.int64)
