"""Plans with a given number of workers and N_m: packings whose workers keep a period, with links that suffice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.tolerances import MIP_BOUND
from stagecut.planner.workers.columns import Column, with_stages
from stagecut.planner.workers.link_rows import LinkRows
from stagecut.planner.workers.packing import LoadRow, pack
from stagecut.planner.workers.rows.chain_program import Chain, SuffixValues
from stagecut.planner.workers.rows.chains import Chains, patterns_of
from stagecut.planner.workers.rows.kinds import Counts
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

    While the packing found occupies links for too long, rows of these are added, for the worst of them and the sum of
    all; where that does not exclude it, its patterns are replaced by all their stages. Raises a StoppedError if the
    budget ends first.
    """
    if chains.exchange.least_period_s(case.num_workers) > period_s * (1 + MIP_BOUND):
        return None
    with search.step("partition"):
        links = LinkRows(chains, case.setting, period_s)
        columns = _columns(chains, case, period_s, links.values)
    for _ in range(MOST_ROUNDS):
        with search.step("packing"):
            found = _packed(search, chains, case, columns, links.rows(columns))
        if found is None:
            return None
        chosen = found
        with search.step("partition"):
            fastest = lightest = [own.chain or links.values.chain(own.pattern) for own in chosen]
            busy = links.busy(fastest)
            if not busy:
                break
            lightest, is_broken = links.add_rows(chosen, busy)
            if not is_broken:
                before, columns = columns, _finer(chains, case, links, columns, chosen)
                if columns == before:
                    break
    return Packed(
        patterns=[own.pattern for own in chosen],
        fastest=fastest,
        lightest=lightest,
        period_s=max(period_of(chains, case.setting, own) for own in set(fastest)),
    )


def lightest_within(
    search: WaveSearch, chains: Chains, case: Case, period_s: float
) -> tuple[list[Counts], list[Chain]] | None:
    """Workers whose rows keep a period and whose messages occupy the interfaces of hosts least; None: there are none.

    Raises a StoppedError if the budget ends first.
    """
    interfaces = tuple((own, 1.0) for own in chains.kinds.resources if own.name in INTERFACES)
    with search.step("partition"):
        values = chains.least_load(case.setting, period_s, interfaces)
        columns = [
            Column(pattern=pattern, cost=load_s, covers=(sum(pattern) >= case.longest,))
            for pattern, load_s in patterns_of(values.whole(), chains.lattice)
        ]
    with search.step("packing"):
        chosen = _packed(search, chains, case, columns, ())
    if chosen is None:
        return None
    return [own.pattern for own in chosen], [values.chain(own.pattern) for own in chosen]


def _columns(chains: Chains, case: Case, period_s: float, values: SuffixValues) -> list[Column]:
    """The patterns whose rows keep a period."""
    turns = chains.exchange.turns(case.num_workers, period_s)
    covering = [chains.fastest(case.setting, period_s, turn).whole() for turn in turns]
    found = []
    for pattern, cost in patterns_of(values.whole(), chains.lattice):
        size, row = sum(pattern), chains.lattice.row(pattern)
        covers = (size >= case.longest, *(bool(np.isfinite(whole[size][row])) for whole in covering))
        found.append(Column(pattern=pattern, cost=cost, covers=covers))
    return found


def _packed(
    search: WaveSearch, chains: Chains, case: Case, columns: Sequence[Column], rows: Sequence[LoadRow]
) -> list[Column] | None:
    chosen = pack(
        search,
        [own.pattern for own in columns],
        chains.kinds.counts,
        num_workers=case.num_workers,
        covers=[np.array(own) for own in zip(*(own.covers for own in columns), strict=True)],
        cost=np.array([own.cost for own in columns]),
        rows=rows,
    )
    return None if chosen is None else [columns[index] for index in chosen]


def _finer(
    chains: Chains, case: Case, links: LinkRows, columns: Sequence[Column], chosen: Sequence[Column]
) -> list[Column]:
    """The columns with all stages of the chosen patterns in place of these, where they are not too many."""
    finer: list[Column] = []
    for own in columns:
        stages = None
        if own in chosen and own.chain is None and case.setting.is_single:
            stages = with_stages(chains, case.setting, links.period_s, links.values, own)
        finer += [own] if stages is None else stages
    return finer
