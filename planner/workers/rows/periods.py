"""Least periods of waves of several workers together."""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.kinds import Counts
from stagecut.planner.workers.rows.row_tables import Setting
from stagecut.planner.workers.rows.worker_rows import PERIOD_STEP, WorkerRows

LONGEST_S = 1e12
"""Longer than any wave."""


def period_of(chains: Chains, setting: Setting, chain: Chain) -> float:
    """See :attr:`WorkerRows.period_s`."""
    return WorkerRows(chains, setting, chain).period_s


def least_period(
    chains: Chains, setting: Setting, patterns: Sequence[Counts], *, longest_s: float = LONGEST_S
) -> tuple[float, dict[Counts, Chain]] | None:
    """The least period that a worker of each of these patterns may keep, rounded down, and stages that nearly do.

    None if one of them keeps the longest one with no stages.
    """
    wanted = list(dict.fromkeys(patterns))
    found, low_s, high_s = None, 0.0, longest_s
    while found is None or high_s - low_s > PERIOD_STEP * high_s:
        period_s = longest_s if found is None else (low_s + high_s) / 2
        values = chains.fastest(setting, period_s)
        whole = values.whole()
        if all(np.isfinite(whole[sum(own)][chains.lattice.row(own)]) for own in wanted):
            found = {own: values.chain(own) for own in wanted}
            high_s = min(period_s, max(period_of(chains, setting, chain) for chain in found.values()))
        elif found is None:
            return None
        else:
            low_s = period_s
    return low_s, found
