"""Plans with a given number of workers and N_m: packings whose workers keep a period, with links that suffice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.tolerances import MIP_BOUND
from stagecut.planner.workers.packing import LoadRow, pack
from stagecut.planner.workers.rows.chain_program import Chain, SuffixValues
from stagecut.planner.workers.rows.chains import Chains, Prices, patterns_of
from stagecut.planner.workers.rows.kinds import Counts, Resource
from stagecut.planner.workers.rows.periods import period_of
from stagecut.planner.workers.rows.row_tables import Setting
from stagecut.planner.workers.wave_search import WaveSearch

INTERFACES = ("nic-out", "nic-in")
"""Resources that messages between hosts occupy."""
MOST_ROUNDS = 12
"""Rounds of rows of links, after which those found so far have to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """W workers with N_m minibatches in flight."""

    setting: Setting
    longest: int
    """Stages of the longest worker, at least: for N_m to be chosen."""

    @property
    def num_workers(self) -> int:
        """W."""
        return self.setting.num_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A packing with the stages of its workers."""

    patterns: list[Counts]
    fastest: list[Chain]
    lightest: list[Chain]
    """Stages that occupy busy links less; otherwise the same."""
    period_s: float
    """What the rows say of the first ones."""


def packing_within(search: WaveSearch, chains: Chains, case: Case, period_s: float) -> Packed | None:
    """Workers whose rows keep a period, together with the links they share; None: there are none.

    Rows of links are added while the packing found breaks one: for the priced sum of all links that its workers use for
    too long, and for the worst of them. Raises a StoppedError if the budget ends first.
    """
    with search.step("partition"):
        values = chains.fastest(case.setting, period_s)
        found = [own for own in patterns_of(values.whole(), chains.lattice) if sum(own[0]) <= chains.tables.num_layers]
    patterns = [pattern for pattern, _ in found]
    cost = np.array([value for _, value in found])
    rows: list[LoadRow] = []
    if chains.exchange.least_period_s(case.num_workers) > period_s * (1 + MIP_BOUND):
        return None
    covers = [np.array([sum(own) >= case.longest for own in patterns])]
    for turn in chains.exchange.turns(case.num_workers, period_s):
        with search.step("partition"):
            whole = chains.fastest(case.setting, period_s, turn).whole()
        covers.append(np.array([bool(np.isfinite(whole[sum(own)][chains.lattice.row(own)])) for own in patterns]))
    for _ in range(MOST_ROUNDS):
        with search.step("packing"):
            chosen = pack(
                search,
                patterns,
                chains.kinds.counts,
                num_workers=case.num_workers,
                covers=covers,
                cost=cost,
                rows=rows,
            )
        if chosen is None:
            return None
        with search.step("partition"):
            fastest = {own: values.chain(own) for own in set(chosen)}
            lightest, broken = _broken_rows(chains, case.setting, period_s, patterns, chosen, fastest)
        rows += broken
        packed = Packed(
            patterns=chosen,
            fastest=[fastest[own] for own in chosen],
            lightest=[lightest[own] for own in chosen],
            period_s=max(period_of(chains, case.setting, own) for own in fastest.values()),
        )
        if not broken:
            break
    return packed


def lightest_within(
    search: WaveSearch, chains: Chains, case: Case, period_s: float
) -> tuple[list[Counts], list[Chain]] | None:
    """Workers whose rows keep a period and whose messages occupy the interfaces of hosts least; None: there are none.

    Raises a StoppedError if the budget ends first.
    """
    interfaces = tuple((own, 1.0) for own in chains.kinds.resources if own.name in INTERFACES)
    with search.step("partition"):
        values = chains.least_load(case.setting, period_s, interfaces)
        found = [own for own in patterns_of(values.whole(), chains.lattice) if sum(own[0]) <= chains.tables.num_layers]
    with search.step("packing"):
        chosen = pack(
            search,
            [pattern for pattern, _ in found],
            chains.kinds.counts,
            num_workers=case.num_workers,
            covers=[np.array([sum(own) >= case.longest for own, _ in found])],
            cost=np.array([load_s for _, load_s in found]),
            rows=(),
        )
    return None if chosen is None else (chosen, [values.chain(own) for own in chosen])


def _broken_rows(
    chains: Chains,
    setting: Setting,
    period_s: float,
    patterns: Sequence[Counts],
    chosen: Sequence[Counts],
    by_pattern: dict[Counts, Chain],
) -> tuple[dict[Counts, Chain], list[LoadRow]]:
    """The rows of links that no stages of the chosen patterns keep, and the stages that come nearest to it."""
    excess = {
        resource: sum(chain_load_s(chains, setting, by_pattern[own], resource) for own in chosen)
        / (period_s * resource.num_links)
        for resource in chains.kinds.resources
    }
    busy = [resource for resource, share in excess.items() if share > 1 + MIP_BOUND]
    if not busy:
        return by_pattern, []
    worst = max(busy, key=excess.__getitem__)
    lightest, broken = by_pattern, []
    for prices in dict.fromkeys((((worst, 1.0),), tuple((resource, 1.0) for resource in busy))):
        values = chains.least_load(setting, period_s, prices)
        row = _row(values, chains, patterns, prices, period_s)
        index = {own: number for number, own in enumerate(patterns)}
        if sum(row.load_s[index[own]] for own in chosen) > row.room_s * (1 + 2 * MIP_BOUND):
            broken.append(row)
        lightest = {own: values.chain(own) for own in by_pattern}
    return lightest, broken


def _row(values: SuffixValues, chains: Chains, patterns: Sequence[Counts], prices: Prices, period_s: float) -> LoadRow:
    whole = values.whole()
    load_s = np.array([whole[sum(own)][chains.lattice.row(own)] for own in patterns])
    return LoadRow(load_s=load_s, room_s=period_s * sum(price * resource.num_links for resource, price in prices))


def chain_load_s(chains: Chains, setting: Setting, chain: Chain, resource: Resource) -> float:
    """Seconds for which the boundaries of a worker occupy a resource in a wave."""
    boundary, total_s = chains.boundary_load_s(resource), 0.0
    for kind, following, stop in zip(chain.kinds, chain.kinds[1:], chain.stops, strict=False):
        total_s += setting.wave * float(boundary[kind, following, stop])
    return total_s
