"""Rows of the links that workers share: what they occupy in a period is no more than there is."""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.numerics.tolerances import MIP_BOUND
from stagecut.planner.workers.columns import Column, chain_load_s
from stagecut.planner.workers.packing import LoadRow
from stagecut.planner.workers.rows.chain_program import Chain, SuffixValues
from stagecut.planner.workers.rows.chains import Chains, Prices
from stagecut.planner.workers.rows.kinds import Resource
from stagecut.planner.workers.rows.row_tables import Setting


class LinkRows:
    """What workers that keep a period occupy links for, and the rows of links found so far."""

    def __init__(self, chains: Chains, setting: Setting, period_s: float) -> None:
        self._chains, self._setting, self.period_s = chains, setting, period_s
        self.values = chains.fastest(setting, period_s)
        """Of the rows of workers alone."""
        self._lightest: dict[Prices, SuffixValues] = {}

    def busy(self, team: Sequence[Chain]) -> dict[Resource, float]:
        """The links that workers occupy for longer than a period, and how many times as long."""
        shares = {
            resource: sum(chain_load_s(self._chains, self._setting, own, resource) for own in team)
            / (self.period_s * resource.num_links)
            for resource in self._chains.kinds.resources
        }
        return {resource: share for resource, share in shares.items() if share > 1 + MIP_BOUND}

    def add_rows(self, chosen: Sequence[Column], busy: dict[Resource, float]) -> tuple[list[Chain], bool]:
        """Stages of the chosen columns that occupy busy links least, and whether even these break a row."""
        worst = max(busy, key=busy.__getitem__)
        is_broken = False
        for prices in dict.fromkeys((((worst, 1.0),), tuple((own, 1.0) for own in busy))):
            values = self._chains.least_load(self._setting, self.period_s, prices)
            row = self._row(chosen, prices, values)
            if row.load_s.sum() > row.room_s * (1 + 2 * MIP_BOUND):
                self._lightest[prices] = values
                is_broken = True
        return [own.chain or values.chain(own.pattern) for own in chosen], is_broken

    def rows(self, columns: Sequence[Column]) -> list[LoadRow]:
        """Those that have been added."""
        return [self._row(columns, prices, values) for prices, values in self._lightest.items()]

    def _row(self, columns: Sequence[Column], prices: Prices, values: SuffixValues) -> LoadRow:
        whole, lattice = values.whole(), self._chains.lattice

        def load_s(own: Column) -> float:
            if own.chain is None:
                return float(whole[sum(own.pattern)][lattice.row(own.pattern)])
            return sum(
                price * chain_load_s(self._chains, self._setting, own.chain, resource) for resource, price in prices
            )

        room_s = self.period_s * sum(price * resource.num_links for resource, price in prices)
        return LoadRow(load_s=np.array(list(map(load_s, columns))), room_s=room_s)
