"""What a packing may use: patterns with any stages that keep a period, or with given stages.

A pattern with any stages occupies each sum of links as little as some of its stages do, which need not be the same for
all sums. Where that matters, and there are not too many, all stages of the pattern take its place: then the packing is
exact in what messages inside workers occupy.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.workers.rows.chain_program import Chain, SuffixValues
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.kinds import Counts, Resource
from stagecut.planner.workers.rows.row_tables import Setting
from stagecut.planner.workers.rows.worker_rows import WorkerRows

MOST_STAGES = 1000
"""Ways to cut and order the stages of a pattern, of which more are not looked at one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A pattern that a packing may use."""

    pattern: Counts
    cost: float
    covers: tuple[bool, ...]
    """Whether it is one of each set of patterns that a packing needs one of."""
    chain: Chain | None = None
    """Its stages; None: any that keep the period."""


def with_stages(
    chains: Chains, setting: Setting, period_s: float, values: SuffixValues, column: Column
) -> list[Column] | None:
    """A column for each way to cut and order its stages that occupies links less than all others; None: too many."""
    found = list(islice(values.chains(column.pattern), MOST_STAGES + 1))
    if len(found) > MOST_STAGES:
        return None
    kept = [own for own in found if WorkerRows(chains, setting, own).least_depths(period_s) is not None]
    loads = [[chain_load_s(chains, setting, own, each) for each in chains.kinds.resources] for own in kept]
    return [replace(column, chain=kept[index]) for index in _least(np.array(loads).reshape(len(kept), -1))]


def chain_load_s(chains: Chains, setting: Setting, chain: Chain, resource: Resource) -> float:
    """Seconds for which the boundaries of a worker occupy a resource in a wave."""
    boundary, total_s = chains.boundary_load_s(resource), 0.0
    for kind, following, stop in zip(chain.kinds, chain.kinds[1:], chain.stops, strict=False):
        total_s += setting.wave * float(boundary[kind, following, stop])
    return total_s


def _least(loads: Floats) -> Sequence[int]:
    """The rows that no other one is below, the first of equal ones."""
    kept: list[int] = []
    for index, own in enumerate(loads):
        below = np.all(loads <= own, axis=1)
        equal = np.all(loads == own, axis=1)
        if not np.any(below & ~equal) and not np.any(equal[:index]):
            kept.append(index)
    return kept
