"""The best plan over given devices for each virtual worker: partition, order and N_m."""

import math
from collections.abc import Iterator, Sequence

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.waves.wave_legality import most_in_flight
from stagecut.planner.workers.building import Seats, plan_of, worker_of
from stagecut.planner.workers.paper_partition import paper_chain
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.depths import depth_choices
from stagecut.planner.workers.rows.kinds import Counts
from stagecut.planner.workers.rows.periods import LONGEST_S, least_period, period_of
from stagecut.planner.workers.rows.row_tables import RowTables, Setting
from stagecut.planner.workers.rows.worker_rows import Depths, WorkerRows
from stagecut.planner.workers.wave_search import WaveSearch


def plan_allocation(search: WaveSearch, chains: Chains, seats: Sequence[Seats]) -> float:
    """Offer the plans of workers on these devices for every N_m that fits; no such plan has more samples per second.

    An N_m that cannot be better than what the search has found before is left out, from what is returned as well.
    HetPipe's partition is tried, and the one whose rows allow the shortest period; the highest bound first.
    """
    tables, patterns = chains.tables, [tuple(map(len, own)) for own in seats]
    found: list[tuple[float, Setting, dict[Counts, Chain]]] = []
    for setting in settings(tables, len(patterns), max(map(sum, patterns))):
        with search.step("partition"):
            longest_s = min(LONGEST_S, _samples(search, setting, len(patterns)) / (search.best or ALMOST_ZERO))
            least = least_period(chains, setting, patterns, longest_s=longest_s)
        if least is None and longest_s == LONGEST_S:
            break
        if least is not None:
            found.append((_rate(search, setting, len(patterns), least[0]), setting, least[1]))
    for bound, setting, fastest in sorted(found, key=lambda own: -own[0]):
        if bound <= search.best or search.out_of_budget:
            break
        with search.step("partition"):
            papers = {own: paper_chain(chains, setting, own) or fastest[own] for own in fastest}
        for by_pattern in (fastest, papers):
            period_s = max(period_of(chains, setting, chain) for chain in by_pattern.values())
            if _rate(search, setting, len(patterns), period_s) > search.best:
                own = [by_pattern[pattern] for pattern in patterns]
                offer_chains(search, chains, [setting] * len(seats), seats, own, period_s=period_s)
    return max((bound for bound, _, _ in found), default=0.0)


def _rate(search: WaveSearch, setting: Setting, num_workers: int, period_s: float) -> float:
    """Samples per second of so many workers that all make a wave in a period."""
    return _samples(search, setting, num_workers) / period_s if period_s > 0 else math.inf


def _samples(search: WaveSearch, setting: Setting, num_workers: int) -> int:
    """Of a wave of so many workers."""
    return num_workers * setting.wave * search.problem.job.micro_batches[0]


def offer_chains(
    search: WaveSearch,
    chains: Chains,
    teams: Sequence[Setting],
    seats: Sequence[Seats],
    workers: Sequence[Chain],
    *,
    period_s: float,
) -> float:
    """Simulate plans of workers with these settings, devices and stages; the most samples per second of them.

    Depths are those that keep a period alone, and larger ones.
    """
    pairs = list(zip(teams, workers, strict=True))
    choices = {pair: depth_choices(WorkerRows(chains, *pair), pair[0], period_s) for pair in dict.fromkeys(pairs)}
    rates = [0.0]
    for depths in zip(*(choices[pair] for pair in pairs), strict=True):
        if all(depths):
            rates.append(offer_workers(search, chains, teams, seats, workers, depths))
    return max(rates)


def offer_workers(
    search: WaveSearch,
    chains: Chains,
    teams: Sequence[Setting],
    seats: Sequence[Seats],
    workers: Sequence[Chain],
    depths: Sequence[Depths],
    *,
    in_full: bool = False,
) -> float:
    """Simulate the plan of workers with these settings, devices, stages and depths; its samples per second.

    See :meth:`WaveSearch.offer` for plans that are not simulated in full.
    """
    each = zip(teams, workers, depths, seats, strict=True)
    plan = plan_of(chains.tables, tuple(worker_of(chains.tables, *own) for own in each))
    return search.offer(plan, in_full=in_full)


def settings(tables: RowTables, num_workers: int, most_stages: int) -> Iterator[Setting]:
    """N_m as stated, or from 1 to the largest that the longest worker can make use of; the wave has as many.

    With one step a wave, a wave of all workers is the global batch if N_m is left open.
    """
    choices = tables.choices
    numbers: Sequence[int]
    if choices.in_flight != AUTO:
        numbers = (choices.in_flight,)
    elif choices.local_step is LocalStep.WAVE:
        whole, rest = divmod(tables.problem.job.global_batch // tables.problem.job.micro_batches[0], num_workers)
        numbers = (whole,) if rest == 0 else ()
    else:
        numbers = range(1, most_in_flight(most_stages) + 1)
    for number in numbers:
        yield Setting.of(number, num_workers=num_workers)
