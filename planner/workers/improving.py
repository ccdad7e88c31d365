"""Small changes of a plan that the simulator likes: rows do not see how messages of workers meet on a link."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from stagecut.planner.core.wave_plan import VirtualWorker
from stagecut.planner.workers.building import Seats
from stagecut.planner.workers.chain_program import Chain
from stagecut.planner.workers.chains import Chains
from stagecut.planner.workers.fixed_allocation import offer_chains
from stagecut.planner.workers.periods import period_of
from stagecut.planner.workers.rows import Setting
from stagecut.planner.workers.wave_search import WaveSearch

MOST_PLANS = 300
"""Neighbours simulated at most; on hetpipe-16 nothing gets better after some hundred."""


class Improvement:
    """Descent from the best plan."""

    def __init__(self, search: WaveSearch, chains: Chains) -> None:
        self._search, self._chains = search, chains
        self._tried: set[tuple[Chain, ...]] = set()

    def run(self) -> bool:
        """Simulate neighbours of the best plan until none is better; whether any was."""
        first = before = self._search.best
        while self._round():
            if self._search.best <= before:
                break
            before = self._search.best
        return self._search.best > first

    def _round(self) -> bool:
        """Try neighbours up to the first better one; False if the budget is spent."""
        plan, before = self._search.best_plan, self._search.best
        if plan is None:
            return False
        worker = plan.workers[0]
        setting = Setting(in_flight=worker.in_flight, wave=worker.wave, alone=len(plan.workers) == 1)
        seats = [self._seats(own) for own in plan.workers]
        longest_s = plan.samples_per_wave / before
        for changed in _neighbours([self._chain(own) for own in plan.workers]):
            if self._search.out_of_budget or len(self._tried) >= MOST_PLANS:
                return False
            if changed in self._tried or not self._may_be_better(setting, changed, longest_s):
                continue
            self._tried.add(changed)
            if offer_chains(self._search, self._chains.tables, [setting] * len(seats), seats, changed) > before:
                return True
        return True

    def _may_be_better(self, setting: Setting, changed: Sequence[Chain], longest_s: float) -> bool:
        return all(period_of(self._chains, setting, chain) < longest_s for chain in set(changed))

    def _kind(self, device: str) -> int:
        placement = self._chains.tables.model.group(device).placement
        return self._chains.kinds.placements.index(placement)

    def _chain(self, worker: VirtualWorker) -> Chain:
        kinds = tuple(self._kind(device) for device in worker.devices)
        return Chain(kinds=kinds, stops=tuple(stage.stop for stage in worker.stages))

    def _seats(self, worker: VirtualWorker) -> Seats:
        kinds = range(self._chains.kinds.num_kinds)
        return tuple(tuple(own for own in worker.devices if self._kind(own) == kind) for kind in kinds)


def _neighbours(chains: list[Chain]) -> Iterator[tuple[Chain, ...]]:
    """One chain changed, in all workers that have it, or in the first one of them."""
    for chain in dict.fromkeys(chains):
        same = [index for index, own in enumerate(chains) if own == chain]
        for changed in _changes(chain):
            for some in {len(same): same, 1: same[:1]}.values():
                yield tuple(changed if index in some else own for index, own in enumerate(chains))


def _changes(chain: Chain) -> Iterator[Chain]:
    """A boundary moved by a layer, or two neighbours exchanged, with their layers or without."""
    for index in range(len(chain.kinds) - 1):
        for step in (-1, 1):
            stops = np.array(chain.stops)
            stops[index] += step
            if np.all(np.diff(stops, prepend=0) > 0):
                yield replace(chain, stops=tuple(stops.tolist()))
        kinds = list(chain.kinds)
        if kinds[index] != kinds[index + 1]:
            kinds[index : index + 2] = kinds[index + 1], kinds[index]
            yield replace(chain, kinds=tuple(kinds))
            sizes = np.diff(chain.stops, prepend=0)
            sizes[[index, index + 1]] = sizes[[index + 1, index]]
            yield Chain(kinds=tuple(kinds), stops=tuple(np.cumsum(sizes).tolist()))
