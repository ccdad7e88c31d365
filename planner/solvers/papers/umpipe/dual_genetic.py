"""DGAP, the dual-chromosome genetic algorithm: forwards and backwards are bred apart.

Under a flush their times add up, so each line has a population, and random numbers, of its own. A chromosome is
evaluated by the recurrence as it is written, one sublot after another.
"""

from collections.abc import Callable, Sequence

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.solvers.papers.umpipe.found import Found, Lines, joined, sizes_of
from stagecut.planner.solvers.papers.umpipe.operators import Breeding, Evaluate, bred
from stagecut.planner.solvers.papers.umpipe.ticks import in_ticks
from stagecut.planner.sublots.process_chain import ProcessChain


def dual_genetic(lines: Lines, *, seed: int, breeding: Breeding) -> Found:
    """Sizes of all lines."""
    return bred_apart(lines, one_by_one, seed=seed, breeding=breeding)


def bred_apart(lines: Lines, evaluation: Callable[[ProcessChain], Evaluate], *, seed: int, breeding: Breeding) -> Found:
    """Each line bred with random numbers of its own."""
    seeds = np.random.SeedSequence(seed).spawn(len(lines))
    randoms = map(np.random.default_rng, seeds)
    pairs = zip(in_ticks(lines), randoms, strict=True)
    return joined([bred((line,), evaluation(line), random, breeding) for line, random in pairs])


def one_by_one(line: ProcessChain) -> Evaluate:
    """Evaluation of the chromosomes of one line, one after another."""
    seconds = [process.seconds.tolist() for process in line.processes]
    releases_s = [process.release_s for process in line.processes]

    def evaluate(population: Ints) -> Floats:
        choices = (sizes_of((line,), genes) for genes in population.tolist())
        return np.array([plain_makespan_s(seconds, releases_s, sizes) for (sizes,) in choices])

    return evaluate


def plain_makespan_s(seconds: Sequence[Sequence[float]], releases_s: Sequence[float], sizes: Sequence[int]) -> float:
    """E_i(j) = max(E_i(j - 1), E_{i-1}(ceil(min(j x_i, N) / x_{i-1}))) + T_i(samples of sublot j).

    Parameters
    ----------
    seconds
        Of x samples at index x, by process.
    releases_s
        E_i(0): no sublot of process i starts earlier.
    """
    num_samples = len(seconds[0]) - 1
    size_before, ends_before_s = num_samples, [0.0, 0.0]
    for process_s, release_s, size in zip(seconds, releases_s, sizes, strict=True):
        end_s, ends_s = release_s, [release_s]
        for begin in range(0, num_samples, size):
            stop = min(begin + size, num_samples)
            arrived_s = ends_before_s[-(-stop // size_before)]
            end_s = max(end_s, arrived_s) + process_s[stop - begin]
            ends_s.append(end_s)
        size_before, ends_before_s = size, ends_s
    return ends_before_s[-1]
