"""Small changes of a plan that the simulator likes: rows do not see how messages of workers meet on a link."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.cost.waves.wave_legality import most_in_flight
from stagecut.planner.workers.building import Seats
from stagecut.planner.workers.fixed_allocation import offer_workers
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.depths import monotone
from stagecut.planner.workers.rows.row_tables import Setting
from stagecut.planner.workers.rows.worker_rows import Depths, WorkerRows
from stagecut.planner.workers.wave_search import WaveSearch

MOST_PLANS = 600
"""Neighbours simulated at most; on hetpipe-16 nothing gets better after some hundred."""

MOST_STARTS = 3
"""Plans whose neighbours are."""

Member = tuple[Chain, Depths]
"""Stages of a worker, and how many minibatches they hold."""


class Improvement:
    """Descent from the best plans of some number of workers."""

    def __init__(self, search: WaveSearch, chains: Chains) -> None:
        self._search, self._chains = search, chains
        self._tried: set[tuple[int, tuple[Member, ...]]] = set()

    def run(self, num_workers: int) -> None:
        """Simulate neighbours of the best plans over unlike devices until none is better."""
        best = self._search.best_of
        starts = [hosts for hosts in best if len(hosts) == num_workers]
        for hosts in sorted(starts, key=lambda hosts: -best[hosts][0])[:MOST_STARTS]:
            while self._round(*best[hosts]):
                pass

    def _round(self, before: float, plan: WavePlan) -> bool:
        """Try neighbours up to the first better one; False if there is none, or the budget is spent."""
        own, num_workers = plan.workers[0].in_flight, len(plan.workers)
        stated = self._chains.tables.choices.in_flight != AUTO or self._chains.flushes
        seats = [self._seats(worker) for worker in plan.workers]
        tau = plan.samples_per_wave / before / own
        most = most_in_flight(max(worker.num_stages for worker in plan.workers))
        for in_flight in (own,) if stated else (own, min(own + 1, most), max(own - 1, 1)):
            setting = Setting.of(in_flight, num_workers=num_workers)
            for changed in _neighbours([self._member(worker) for worker in plan.workers], same=in_flight != own):
                if self._search.closed or self._search.out_of_budget or len(self._tried) >= MOST_PLANS:
                    return False
                if (in_flight, changed) in self._tried or not self._may_be_better(setting, changed, tau):
                    continue
                self._tried.add((in_flight, changed))
                teams, chains, depths = [setting] * len(seats), *zip(*changed, strict=True)
                if offer_workers(self._search, self._chains, teams, seats, chains, depths) > before:
                    return True
        return False

    def _may_be_better(self, setting: Setting, changed: Sequence[Member], tau: float) -> bool:
        return all(
            WorkerRows(self._chains, setting, chain).least_depths(tau * setting.wave, depths) is not None
            for chain, depths in set(changed)
        )

    def _kind(self, device: str) -> int:
        placement = self._chains.tables.model.group(device).placement
        return self._chains.kinds.placements.index(placement)

    def _member(self, worker: VirtualWorker) -> Member:
        kinds = tuple(self._kind(device) for device in worker.devices)
        chain = Chain(kinds=kinds, stops=tuple(stage.stop for stage in worker.stages))
        return chain, tuple(stage.warmup_depth for stage in worker.stages)

    def _seats(self, worker: VirtualWorker) -> Seats:
        kinds = range(self._chains.kinds.num_kinds)
        return tuple(tuple(own for own in worker.devices if self._kind(own) == kind) for kind in kinds)


def _neighbours(team: list[Member], *, same: bool) -> Iterator[tuple[Member, ...]]:
    """One member changed, in all workers that have it, or in the first one of them; the team itself if wanted."""
    if same:
        yield tuple(team)
        return
    for member in dict.fromkeys(team):
        like = [index for index, own in enumerate(team) if own == member]
        for changed in (*_of_others(team, member), *_changes(*member)):
            for some in {len(like): like, 1: like[:1]}.values():
                yield tuple(changed if index in some else own for index, own in enumerate(team))


def _of_others(team: list[Member], member: Member) -> Iterator[Member]:
    """Members with as many devices of each kind."""
    for other in dict.fromkeys(team):
        if other != member and sorted(other[0].kinds) == sorted(member[0].kinds):
            yield other


def _changes(chain: Chain, depths: Depths) -> Iterator[Member]:
    """A boundary moved by a layer, two neighbours exchanged, with their layers or without, a depth changed by one."""
    for index in range(len(chain.kinds) - 1):
        for step in (-1, 1):
            stops = np.array(chain.stops)
            stops[index] += step
            if np.all(np.diff(stops, prepend=0) > 0):
                yield replace(chain, stops=tuple(stops.tolist())), depths
        kinds = list(chain.kinds)
        if kinds[index] != kinds[index + 1]:
            kinds[index : index + 2] = kinds[index + 1], kinds[index]
            yield replace(chain, kinds=tuple(kinds)), depths
            sizes = np.diff(chain.stops, prepend=0)
            sizes[[index, index + 1]] = sizes[[index + 1, index]]
            yield Chain(kinds=tuple(kinds), stops=tuple(np.cumsum(sizes).tolist())), depths
    for index in range(len(depths)):
        for step in (1, -1):
            if depths[index] + step > 0:
                yield chain, monotone(depths, index, depths[index] + step)
