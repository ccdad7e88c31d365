"""The best allocation of all: packings of patterns whose rows keep a period, from the top down.

All workers make equally many waves, so with W workers, H minibatches a wave and b samples each, more than X samples per
second need a wave in less than T = W H b / X. For each W and N_m a *case* asks for a packing whose workers keep T. If
there is none, no plan of the case has more than X; else its plan is played. The cases with the highest bound come
first. One with several N_m, which needs the memory of the least, has the waves of the largest and is bounded for all of
them, is cut into halves.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.waves.wave_legality import most_in_flight
from stagecut.planner.workers.building import Seats, seats_of
from stagecut.planner.workers.cases import Case, Packed, lightest_within, packing_within
from stagecut.planner.workers.exhaustion import exhaust
from stagecut.planner.workers.fixed_allocation import offer_chains, settings
from stagecut.planner.workers.improving import Improvement
from stagecut.planner.workers.packing import StoppedError
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.periods import LONGEST_S
from stagecut.planner.workers.rows.row_tables import Setting
from stagecut.planner.workers.rows.worker_rows import WorkerRows
from stagecut.planner.workers.wave_search import WaveSearch

FINE, COARSE = 1e-3, 1e-2
"""Relative precision of the bounds of cases with one N_m, and with several."""

LIGHTER = (0.95, 0.85, 0.7, 0.55, 0.4, 0.3, 0.2, 0.1, 0.03)
"""Where between the best plan and a bound workers with less to send are tried."""
MOST_LIGHTER = 2
"""Cases with the same number of workers in which they are."""
PATIENCE = (0.0, 1.0)
"""Periods that their messages may wait: more leave memory for the depths that queues ask for."""

MOST = 1e18
"""Samples per second that stand for infinitely many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Plans with a common bound."""

    bound: float
    """Samples per second, at most."""
    case: Case
    is_own: bool = False
    """Whether the bound was found for this case; else it is that of a larger one."""

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
        self._improvement = Improvement(search, chains)
        self._left = 0.0
        self._lighter: Counter[int] = Counter()
        for num_workers in self._numbers():
            for case in self._cases(num_workers):
                self._push(Entry(bound=search.bound, case=case))

    def run(self) -> None:
        """Lower the highest bound until a plan comes close to it, or nothing is left to try."""
        try:
            while self._heap and not self._search.out_of_budget:
                _, _, entry = heapq.heappop(self._heap)
                self._search.lower_bound_to(max(entry.bound, self._left, self._search.best))
                if self._search.closed or entry.bound <= self._search.target:
                    return
                self._treat(entry)
        except StoppedError:
            return
        if not self._heap:
            self._search.lower_bound_to(max(self._left, self._search.best))

    def _treat(self, entry: Entry) -> None:
        """Replace an entry by others with lower bounds; where that cannot be done, its bound is left."""
        setting = entry.case.setting
        if not entry.is_own:
            bound = self._bound(entry, FINE if setting.is_single else COARSE)
            self._push(Entry(bound=bound, case=entry.case, is_own=True))
        elif setting.is_single:
            self._play_on(entry)
        else:
            middle = (setting.in_flight + setting.deepest) // 2
            for least, most in ((setting.in_flight, middle), (middle + 1, setting.deepest)):
                self._push(Entry(bound=entry.bound, case=_case(entry.case.num_workers, least, most)))

    def _play_on(self, entry: Entry) -> None:
        """Look for better plans where rows cannot lower the bound."""
        before = self._search.best
        self._play_lighter(entry)
        with self._search.step("improvement"):
            self._improvement.run(entry.case.num_workers)
        if self._search.best > before:
            self._push(entry)
            return
        target = self._search.target
        with self._search.step("exhaustion"):
            done = exhaust(self._search, self._chains, entry.case)
        if done:
            self._push(Entry(bound=target, case=entry.case, is_own=True))
        else:
            self._left = max(self._left, entry.bound)

    def _bound(self, entry: Entry, precision: float) -> float:
        """Samples per second of the case at most; the plans of packings found on the way are played."""
        case, low = entry.case, self._search.target
        samples = case.num_workers * case.setting.wave * self._minibatch
        found, high = None, entry.bound
        if low >= high:
            return high
        if math.isfinite(high):
            nearly = (1 - precision) * high
            packed = packing_within(self._search, self._chains, case, samples / nearly)
            if packed is not None:
                self._play(case, packed)
                return high
            if nearly <= low:
                return low
            high = nearly
        while found is None or (high - low > precision * high if math.isfinite(high) else low < MOST):
            wanted = low if found is None else _between(low, high)
            packed = packing_within(self._search, self._chains, case, samples / wanted if wanted > 0 else LONGEST_S)
            if packed is None:
                if found is None:
                    return wanted
                high = wanted
            else:
                found = packed
                low = wanted if packed.period_s > 0 else high
        self._play(case, found)
        return high

    def _play(self, case: Case, packed: Packed) -> None:
        """Simulate plans of a packing, with the most minibatches in flight of the case that fit."""
        seats = seats_of(self._search.problem.cluster, packed.patterns)
        for own in dict.fromkeys((tuple(packed.fastest), tuple(packed.lightest))):
            self._offer(case, seats, own, packed.period_s)

    def _offer(self, case: Case, seats: Sequence[Seats], workers: Sequence[Chain], period_s: float) -> None:
        tau, least = period_s / case.setting.wave, case.setting.in_flight
        most = min(case.setting.deepest, max(least, most_in_flight(max(len(own.kinds) for own in workers))))
        for number in dict.fromkeys((most, (least + most) // 2, least)):
            setting = replace(case.setting, in_flight=number, wave=number, deepest=number)
            rows = [WorkerRows(self._chains, setting, own) for own in dict.fromkeys(workers)]
            if all(own.least_depths(tau * number) is not None for own in rows):
                teams = [setting] * len(seats)
                offer_chains(self._search, self._chains, teams, seats, workers, period_s=tau * number)
                return

    def _play_lighter(self, entry: Entry) -> None:
        """Simulate somewhat slower workers that send less between hosts, where messages of all of them queue."""
        case, search = entry.case, self._search
        self._lighter[case.num_workers] += 1
        if self._lighter[case.num_workers] > MOST_LIGHTER:
            return
        samples = case.num_workers * case.setting.wave * self._minibatch
        for share, patience in itertools.product(LIGHTER, PATIENCE) if math.isfinite(entry.bound) else ():
            if search.out_of_budget:
                return
            period_s = samples / (search.best + share * (entry.bound - search.best))
            patient = replace(case, setting=replace(case.setting, patience=patience))
            lightest = lightest_within(search, self._chains, patient, period_s)
            if lightest is not None:
                patterns, own = lightest
                self._offer(patient, seats_of(search.problem.cluster, patterns), own, period_s)

    def _cases(self, num_workers: int) -> list[Case]:
        lattice, tables = self._chains.lattice, self._chains.tables
        most = min(len(lattice.levels) - 1, tables.problem.cluster.num_devices - num_workers + 1)
        if tables.choices.in_flight == AUTO and tables.choices.local_step is LocalStep.MINIBATCH:
            return [_case(num_workers, 1, most_in_flight(most))]
        found = settings(tables, num_workers, most)
        return [Case(setting=setting, longest=1) for setting in found]

    def _numbers(self) -> range:
        stated, most = self._search.num_workers, int(self._chains.kinds.counts.sum())
        return range(1, most + 1) if stated is None else range(stated, min(stated, most) + 1)

    def _push(self, entry: Entry) -> None:
        if entry.bound > 0:
            heapq.heappush(self._heap, (entry.order, next(self._number), entry))


def _case(num_workers: int, least: int, most: int) -> Case:
    """All N_m from the least to the most; the longest worker has to allow for the least."""
    setting = Setting(in_flight=least, wave=most, num_workers=num_workers, deepest=most)
    return Case(setting=setting, longest=-(-(least + 3) // 4))


def _between(low: float, high: float) -> float:
    """The middle, or twice as much where nothing is known above."""
    return (low + high) / 2 if math.isfinite(high) else 2 * low
