"""The best allocation of all: packings of patterns whose rows keep a period, from the top down.

All workers make equally many waves, so with W workers, H minibatches a wave and b samples each, more than X samples per
second need a wave in less than T = W H b / X. For each W and N_m a *case* asks for a packing whose workers keep T. If
there is none, no plan of the case has more than X; else its plan is played. The cases with the highest bound come
first; for each W a relaxed case comes before those of all N_m: it needs memory for N_m = 1 only, hides every latency
and exchanges nothing.
"""

import heapq
import itertools
import math
from dataclasses import dataclass
from enum import IntEnum

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.workers.building import seats_of
from stagecut.planner.workers.cases import Case, Packed, packing_within
from stagecut.planner.workers.chains import Chains
from stagecut.planner.workers.exhaustion import exhaust
from stagecut.planner.workers.fixed_allocation import offer_chains, settings
from stagecut.planner.workers.improving import Improvement
from stagecut.planner.workers.packing import StoppedError
from stagecut.planner.workers.periods import LONGEST_S
from stagecut.planner.workers.rows import Setting
from stagecut.planner.workers.wave_search import WaveSearch

FINE, COARSE = 1e-3, 1e-2
"""Relative precision of the bounds of cases, and of relaxed ones."""

MOST = 1e18
"""Samples per second that stand for infinitely many."""


class Stage(IntEnum):
    """What has been done about the plans of an entry."""

    RELAXED = 0
    """All N_m of a number of workers; nothing yet."""
    OPEN = 1
    """All N_m, with a bound."""
    CASE = 2
    """One N_m, with the bound of all."""
    PROVEN = 3
    """One N_m, with its own bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Plans with a common bound."""

    bound: float
    """Samples per second, at most."""
    stage: Stage
    case: Case

    @property
    def order(self) -> tuple[float, int, int]:
        """The highest bound first, then fewer workers, then more minibatches in flight."""
        return -self.bound, self.case.num_workers, -self.case.setting.in_flight


class OptimalAllocation:
    """Search over all numbers of workers, N_m, allocations, orders and partitions."""

    def __init__(self, search: WaveSearch, chains: Chains) -> None:
        self._search, self._chains = search, chains
        self._minibatch = search.problem.job.micro_batches[0]
        self._heap: list[tuple[tuple[float, int, int], int, Entry]] = []
        self._number = itertools.count()
        for num_workers in self._numbers():
            setting = Setting(in_flight=1, wave=1, alone=True, relaxed=True)
            case = Case(num_workers=num_workers, setting=setting, longest=1)
            self._push(Entry(bound=search.bound, stage=Stage.RELAXED, case=case))

    def run(self) -> None:
        """Lower the highest bound until a plan comes close to it, or nothing is left to try."""
        try:
            while self._heap and not self._search.out_of_budget:
                _, _, entry = heapq.heappop(self._heap)
                self._search.lower_bound_to(max(entry.bound, self._search.best))
                if self._search.closed or not self._treat(entry):
                    return
        except StoppedError:
            return
        if not self._heap:
            self._search.lower_bound_to(self._search.best)

    def _treat(self, entry: Entry) -> bool:
        """Replace an entry by others with lower bounds; False if that cannot be done."""
        match entry.stage:
            case Stage.RELAXED:
                bound = self._bound(entry, COARSE)
                self._push(Entry(bound=bound, stage=Stage.OPEN, case=entry.case))
            case Stage.OPEN:
                for case in self._cases(entry.case.num_workers):
                    self._push(Entry(bound=entry.bound, stage=Stage.CASE, case=case))
            case Stage.CASE:
                bound = self._bound(entry, FINE)
                self._push(Entry(bound=bound, stage=Stage.PROVEN, case=entry.case))
            case Stage.PROVEN:
                return self._play_on(entry)
        return True

    def _play_on(self, entry: Entry) -> bool:
        """Look for better plans where rows cannot lower the bound."""
        with self._search.step("improvement"):
            better = Improvement(self._search, self._chains).run()
        if better:
            self._push(entry)
            return True
        target = self._search.target
        with self._search.step("exhaustion"):
            done = exhaust(self._search, self._chains, entry.case)
        if done:
            self._push(Entry(bound=target, stage=Stage.PROVEN, case=entry.case))
        return done

    def _bound(self, entry: Entry, precision: float) -> float:
        """Samples per second of the case at most; the plans of packings found on the way are played."""
        case, low = entry.case, self._search.target
        samples = case.num_workers * case.setting.wave * self._minibatch
        found, high = None, entry.bound
        if low >= high:
            return high
        while found is None or (high - low > precision * high if math.isfinite(high) else low < MOST):
            wanted = low if found is None else _between(low, high)
            packed = packing_within(self._search, self._chains, case, samples / wanted if wanted > 0 else LONGEST_S)
            if packed is None:
                if found is None:
                    return wanted
                high = wanted
            else:
                found = packed
                low = max(wanted, samples / packed.period_s if packed.period_s > 0 else high)
        self._play(case, found)
        return high

    def _play(self, case: Case, packed: Packed) -> None:
        """Simulate the plan of a packing; in relaxed cases for every N_m."""
        if case.setting.relaxed:
            return
        seats = seats_of(self._search.problem.cluster, packed.patterns)
        for own in (packed.fastest, packed.lightest):
            offer_chains(self._search, self._chains.tables, [case.setting] * len(seats), seats, own)

    def _cases(self, num_workers: int) -> list[Case]:
        lattice, tables = self._chains.lattice, self._chains.tables
        most = min(len(lattice.levels) - 1, tables.problem.cluster.num_devices - num_workers + 1)
        stated = tables.choices.in_flight != AUTO or tables.choices.local_step is LocalStep.WAVE
        return [
            Case(num_workers=num_workers, setting=setting, longest=1 if stated else setting.in_flight // 2 + 1)
            for setting in settings(tables, num_workers, most)
        ]

    def _numbers(self) -> range:
        stated, most = self._search.num_workers, int(self._chains.kinds.counts.sum())
        return range(1, most + 1) if stated is None else range(stated, min(stated, most) + 1)

    def _push(self, entry: Entry) -> None:
        if entry.bound > 0:
            heapq.heappush(self._heap, (entry.order, next(self._number), entry))


def _between(low: float, high: float) -> float:
    """The middle, or twice as much where nothing is known above."""
    return (low + high) / 2 if math.isfinite(high) else 2 * low
