"""Waves in proportion to the speed of workers: none waits for a slower one, so that throughputs add up."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.workers.building import Seats, seats_of
from stagecut.planner.workers.fixed_allocation import offer_chains, settings
from stagecut.planner.workers.packing import StoppedError, fastest_packing
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.chains import Chains, patterns_of
from stagecut.planner.workers.rows.kinds import Counts
from stagecut.planner.workers.rows.periods import least_period, period_of
from stagecut.planner.workers.rows.row_tables import Setting
from stagecut.planner.workers.wave_search import WaveSearch

LONGEST_WAVE = 4
"""Minibatches of the slowest worker's wave, as a multiple of N_m: rounding the others down costs up to 1 / H."""


def best_proportional(search: WaveSearch, chains: Chains) -> None:
    """Play the packings whose rates add up to the most, by N_m, and note what no plan exceeds.

    The rate of a pattern is that of its slowest stage at least, with latencies hidden:

        max sum of rate[p] y[p],  devices suffice,  as many workers as stated.
    """
    tables, found = chains.tables, []
    most = len(chains.lattice.levels) - 1
    numbers = (
        [1] if tables.choices.local_step is LocalStep.WAVE else [own.in_flight for own in settings(tables, 2, most)]
    )
    crowd = int(chains.kinds.counts.sum())
    if tables.choices.local_step is LocalStep.WAVE:
        crowd = min(crowd, _minibatches(chains))
    try:
        for number in numbers:
            with search.step("partition"):
                slowest = patterns_of(chains.slowest_stage(number).whole(), chains.lattice)
            rates = np.array([1 / max(seconds, ALMOST_ZERO) for _, seconds in slowest])
            with search.step("packing"):
                bound, chosen = fastest_packing(
                    search, [own for own, _ in slowest], rates, chains.kinds.counts, most=crowd
                )
            found.append((bound * search.problem.job.micro_batches[0], number, chosen))
    except StoppedError:
        return
    found.sort(key=lambda own: -own[0])
    search.lower_bound_to(found[0][0] if found else 0.0)
    for bound, number, chosen in found:
        if search.closed or search.out_of_budget or bound <= search.best:
            return
        offer_proportional(search, chains, seats_of(search.problem.cluster, chosen), number)


def plan_proportional(search: WaveSearch, chains: Chains, seats: Sequence[Seats]) -> float:
    """Offer the plans of workers on these devices for every N_m; no such plan has more samples per second.

    With one step a wave that is not known: latencies count less the longer the waves are.
    """
    most, flushes = max(sum(map(len, own)) for own in seats), chains.tables.choices.local_step is LocalStep.WAVE
    if flushes:
        offer_proportional(search, chains, seats, 1)
        single, patterns = Setting.of(1, num_workers=1), [tuple(map(len, own)) for own in seats]
        shared = _minibatches(chains) >= len(seats) and least_period(chains, single, patterns) is not None
        return math.inf if shared else 0.0
    rates = [
        offer_proportional(search, chains, seats, own.in_flight)
        for own in settings(chains.tables, len(seats), most)
        if not search.out_of_budget
    ]
    return math.inf if search.out_of_budget else max(rates, default=0.0)


def offer_proportional(search: WaveSearch, chains: Chains, seats: Sequence[Seats], in_flight: int) -> float:
    """Offer workers on these devices, each as fast as it can be; their samples per second alone, 0 if one misfits."""
    patterns: list[Counts] = [tuple(map(len, own)) for own in seats]
    flushes = chains.tables.choices.local_step is LocalStep.WAVE
    total = _minibatches(chains) if flushes else 0
    if flushes and total < len(seats):
        return 0.0
    first = total // len(seats) if flushes else in_flight
    fastest: dict[Counts, Chain] = {}
    rate = 0.0
    for own in patterns:
        setting = Setting.of(first, num_workers=1)
        if own not in fastest:
            with search.step("partition"):
                found = least_period(chains, setting, [own])
            if found is None:
                return 0.0
            fastest[own] = found[1][own]
        rate += first / max(period_of(chains, setting, fastest[own]), ALMOST_ZERO)
    workers = [fastest[own] for own in patterns]
    lengths = _shared(chains, workers, total) if flushes else _lengths(chains, workers, in_flight)
    number = len(workers)
    teams = [replace(Setting.of(own if flushes else in_flight, num_workers=number), wave=own) for own in lengths]
    period_s = max(period_of(chains, *pair) for pair in zip(teams, workers, strict=True))
    if math.isfinite(period_s):
        offer_chains(search, chains, teams, seats, workers, period_s=period_s)
    return rate * search.problem.job.micro_batches[0]


def _minibatches(chains: Chains) -> int:
    """Of a wave of all workers that make one step in it: the global batch."""
    job = chains.tables.problem.job
    return job.global_batch // job.micro_batches[0]


def _lengths(chains: Chains, workers: Sequence[Chain], in_flight: int) -> list[int]:
    """Wave lengths of at least N_m that waste the least time: H_w = floor(T / tau_w), T = h x the longest tau."""
    setting = replace(Setting.of(in_flight, num_workers=1), wave=1)
    periods_s = np.array([max(period_of(chains, setting, own), ALMOST_ZERO) for own in workers])
    waves_s = periods_s.max() * np.arange(in_flight, LONGEST_WAVE * in_flight + 1)
    lengths = np.floor(waves_s[:, None] / periods_s * (1 + 1e-9)).astype(int)
    best = int((lengths.sum(axis=1) / waves_s).argmax())
    return [int(own) for own in lengths[best]]


def _shared(chains: Chains, workers: Sequence[Chain], total: int) -> list[int]:
    """So many minibatches, one after the other to the worker that ends its wave the earliest with it."""

    def wave_s(worker: int, length: int) -> float:
        return period_of(chains, Setting.of(length, num_workers=1), workers[worker])

    lengths = [1] * len(workers)
    queue = [(wave_s(worker, 2), worker) for worker in range(len(workers))]
    heapq.heapify(queue)
    for _ in range(total - len(workers)):
        _, worker = queue[0]
        lengths[worker] += 1
        heapq.heapreplace(queue, (wave_s(worker, lengths[worker] + 1), worker))
    return lengths
