"""Periods of waves: what the rows say of given stages, and the least one of patterns."""

from collections.abc import Sequence

from stagecut.planner.core.waves import LocalStep
from stagecut.planner.workers.chain_program import Chain
from stagecut.planner.workers.chains import Chains
from stagecut.planner.workers.kinds import Counts
from stagecut.planner.workers.rows import Setting

LONGEST_S = 1e12
"""Longer than any wave."""
PERIOD_STEP = 1e-4
"""Relative precision of a least period; the lower end of the bracket is what counts as proven."""


def period_of(chains: Chains, setting: Setting, chain: Chain) -> float:
    """A lower bound on the seconds in which a worker with these stages makes a wave: the rows of `Chains.fastest`."""
    tables, wave = chains.tables, setting.wave
    flushes = tables.choices.local_step is LocalStep.WAVE
    distance, num_stages = tables.choices.clock_distance, len(chain.kinds)
    period_s = value_s = 0.0
    for index in reversed(range(num_stages)):
        kind, start, stop = chain.kinds[index], chain.starts[index], chain.stops[index]
        rows = tables.stages(kind, setting.in_flight, num_stages - index)
        compute_s, update_s = float(rows.compute_s[start, stop]), float(rows.update_s[start, stop])
        behind_s = 0.0
        if index + 1 < num_stages:
            following = chain.kinds[index + 1]
            transfer_s = float(chains.kinds.transfer_s[kind, following, stop])
            queue_s = transfer_s * (2 if chains.kinds.one_queue[kind, following] else 1)
            period_s, behind_s = max(period_s, wave * queue_s), 2 * transfer_s + value_s
        value_s = compute_s + behind_s
        if flushes:
            value_s = max(value_s, wave * compute_s)
            step_s = update_s if distance == 0 else 0.0
            period_s = max(period_s, wave * compute_s + update_s, value_s + step_s)
        else:
            step_s, depth = update_s, tables.depth(setting.in_flight, num_stages - index)
            period_s = max(period_s, wave * (compute_s + update_s), wave * (value_s + update_s) / depth)
        if not setting.alone:
            exchange_s = float(chains.exchange_s(kind)[start, stop])
            period_s = max(period_s, (value_s + step_s + exchange_s) / (distance + 1))
    return period_s


def least_period(
    chains: Chains, setting: Setting, patterns: Sequence[Counts]
) -> tuple[float, dict[Counts, Chain]] | None:
    """The least period that a worker of each of these patterns may keep, rounded down, and stages that nearly do.

    None if one of them fits with no stages.
    """
    wanted = list(dict.fromkeys(patterns))
    found, low_s, high_s = None, 0.0, LONGEST_S
    while found is None or high_s - low_s > PERIOD_STEP * high_s:
        period_s = LONGEST_S if found is None else (low_s + high_s) / 2
        values = chains.fastest(setting, period_s)
        whole = values.whole()
        if all(whole[sum(own)][chains.lattice.row(own)] < LONGEST_S for own in wanted):
            found = {own: values.chain(own) for own in wanted}
            high_s = min(period_s, max(period_of(chains, setting, chain) for chain in found.values()))
        elif found is None:
            return None
        else:
            low_s = period_s
    return low_s, found
