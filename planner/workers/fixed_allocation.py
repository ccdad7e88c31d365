"""The best plan over given devices for each virtual worker: partition, order and N_m."""

import math
from collections.abc import Iterator, Sequence

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.workers.building import Seats, plan_of, worker_of
from stagecut.planner.workers.chain_program import Chain
from stagecut.planner.workers.chains import Chains
from stagecut.planner.workers.paper_partition import paper_chain
from stagecut.planner.workers.periods import least_period
from stagecut.planner.workers.rows import RowTables, Setting
from stagecut.planner.workers.wave_search import WaveSearch


def plan_allocation(search: WaveSearch, chains: Chains, seats: Sequence[Seats]) -> float:
    """Offer the plans of workers on these devices for every N_m that fits; no such plan has more samples per second.

    HetPipe's partition is tried, and the one whose rows allow the shortest period.
    """
    tables, patterns = chains.tables, [tuple(map(len, own)) for own in seats]
    most = max(map(sum, patterns))
    bound = 0.0
    for setting in settings(tables, len(patterns), most):
        with search.step("partition"):
            found = least_period(chains, setting, patterns)
        if found is None:
            break
        period_s, fastest = found
        samples = len(patterns) * setting.wave * tables.problem.job.micro_batches[0]
        bound = max(bound, samples / period_s if period_s > 0 else math.inf)
        with search.step("partition"):
            papers = {own: paper_chain(chains, setting, own) or fastest[own] for own in fastest}
        for by_pattern in (fastest, papers):
            offer_chains(search, tables, [setting] * len(seats), seats, [by_pattern[own] for own in patterns])
        if search.out_of_budget:
            return math.inf
    return bound


def offer_chains(
    search: WaveSearch,
    tables: RowTables,
    teams: Sequence[Setting],
    seats: Sequence[Seats],
    chains: Sequence[Chain],
) -> float:
    """Simulate the plan of workers with these settings, devices and stages; its samples per second."""
    workers = zip(teams, chains, seats, strict=True)
    return search.offer(plan_of(tables, tuple(worker_of(tables, *worker) for worker in workers)))


def settings(tables: RowTables, num_workers: int, most_stages: int) -> Iterator[Setting]:
    """N_m as stated, or from 1 to the largest that the longest worker can make use of; the wave has as many.

    With one step a wave, a wave of all workers is the global batch if N_m is left open.
    """
    choices, alone = tables.choices, num_workers == 1
    numbers: Sequence[int]
    if choices.in_flight != AUTO:
        numbers = (choices.in_flight,)
    elif choices.local_step is LocalStep.WAVE:
        whole, rest = divmod(tables.problem.job.global_batch // tables.problem.job.micro_batches[0], num_workers)
        numbers = (whole,) if rest == 0 else ()
    else:
        numbers = range(1, tables.depth(tables.problem.cluster.num_devices * 2, most_stages) + 1)
    for number in numbers:
        yield Setting(in_flight=number, wave=number, alone=alone)
