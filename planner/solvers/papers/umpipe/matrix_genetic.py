"""TiDGAP: DGAP with the sublots of all chromosomes evaluated at once, process by process.

The recurrence of a process is a maximum of running sums, S of its own times, A of arrivals:

    E_j = S_j + max over k <= j of (A_k - S_{k-1}).

Here some hundred chromosomes stand in one row, and each has a time axis that begins when everything before it is over
for certain. The running maximum then passes from one to the next without a trace, so one pass over the row serves them
all, however many sublots each has. Nothing but the evaluation differs from DGAP: same random numbers, and, in whole
ticks (:mod:`stagecut.planner.solvers.papers.umpipe.ticks`), the same fitness to the last bit, so the same answer.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.solvers.papers.umpipe.dual_genetic import bred_apart
from stagecut.planner.solvers.papers.umpipe.found import Found, Lines
from stagecut.planner.solvers.papers.umpipe.operators import Breeding, Evaluate
from stagecut.planner.solvers.papers.umpipe.ticks import HORIZON
from stagecut.planner.sublots.process_chain import Process, ProcessChain

IN_A_ROW = 256
"""Chromosomes in one row: enough to spread the price of a call, few enough for their arrays to stay in a processor's
cache. Rows of 512 take up to twice as long. 2^11 would fit into integers of 64 bits, at up to 2^51 ticks each."""


def matrix_genetic(lines: Lines, *, seed: int, breeding: Breeding) -> Found:
    """Sizes of all lines."""
    return bred_apart(lines, all_at_once, seed=seed, breeding=breeding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublots:
    """The sublots of a batch for some sizes, size after size: S of them in all, N samples."""

    count: Ints
    """Sublots of each size, shape (sizes,)."""
    first: Ints
    """Index of the first sublot of each size, shape (sizes,)."""
    lengths: Ints
    """Samples, shape (S,)."""
    last_sample: Ints
    """Shape (S,)."""
    number: Ints
    """Which sublot of its size a sample is in, by size and sample, shape (sizes x N,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What the sublots of one process take, in ticks."""

    sublots: Sublots
    until: Ints
    """S_j, shape (S,)."""
    before: Ints
    """S_{j-1}, shape (S,)."""
    release: int


class Row(NamedTuple):
    """Sublots of all chromosomes behind a process, chromosome after chromosome."""

    ended: Ints
    """In ticks on the row's common axis, shape (sublots,)."""
    first: Ints
    """Index of the first sublot of each chromosome, shape (P,)."""
    number: Ints
    """As in the process's :class:`Sublots`."""
    number_at: Ints
    """Where the size of each chromosome begins there, shape (P,)."""


def all_at_once(line: ProcessChain) -> Evaluate:
    """Evaluation of a whole population of one line in ticks."""
    sublots = {sizes: sublots_of(line, sizes) for sizes in {process.sizes for process in line.processes}}
    tables = [times_of(process, sublots[process.sizes]) for process in line.processes]
    nothing = np.zeros(line.num_samples, dtype=np.int64)

    def makespans(population: Ints) -> Floats:
        chromosomes = np.arange(len(population))
        clock = 2 * HORIZON * chromosomes
        steps = np.arange(len(population) * line.num_samples)
        row = Row(ended=clock, first=chromosomes, number=nothing, number_at=np.zeros_like(clock))
        for times, genes in zip(tables, population.T, strict=True):
            row = passed(times, genes, row, clock=clock, steps=steps)
        last = np.append(row.first[1:], len(row.ended)) - 1
        ended: Floats = (row.ended[last] - clock).astype(np.float64)
        return ended

    def evaluate(population: Ints) -> Floats:
        rows = (population[first : first + IN_A_ROW] for first in range(0, len(population), IN_A_ROW))
        return np.concatenate([makespans(row) for row in rows])

    return evaluate


def passed(times: Times, genes: Ints, row: Row, *, clock: Ints, steps: Ints) -> Row:
    """The row behind a process, from the one before it.

    Parameters
    ----------
    clock
        Where the time axis of each chromosome begins, in ticks, shape (P,).
    steps
        0, 1, 2 ..., at least as many as there are sublots.
    """
    sublots = times.sublots
    count = sublots.count.take(genes)
    first = count.cumsum() - count
    at = (sublots.first.take(genes) - first).repeat(count)
    at += steps[: len(at)]
    source = row.number.take(row.number_at.repeat(count) + sublots.last_sample.take(at))
    source += row.first.repeat(count)
    lead = row.ended.take(source) - times.before.take(at)
    if times.release > 0:
        # S never falls, so what the first sublot waits for holds for all.
        lead[first] = np.maximum(lead[first], clock + times.release)
    # The same as maximum.accumulate, which takes five times as long on integers.
    ended = np.fmax.accumulate(lead) + times.until.take(at)
    number_at = genes * (len(sublots.number) // len(sublots.count))
    return Row(ended=ended, first=first, number=sublots.number, number_at=number_at)


def times_of(process: Process, sublots: Sublots) -> Times:
    """Running sums of a process whose times are in ticks."""
    ticks = process.seconds[sublots.lengths].astype(np.int64)
    total = np.cumsum(ticks)
    before_size = (total - ticks)[sublots.first]
    until = total - np.repeat(before_size, sublots.count)
    return Times(sublots=sublots, until=until, before=until - ticks, release=int(process.release_s))


def sublots_of(line: ProcessChain, sizes: tuple[int, ...]) -> Sublots:
    """Sublots of the batch of a line."""
    cuts = [line.cuts(size) for size in sizes]
    lengths = [np.diff(each) for each in cuts]
    count = np.array([len(each) for each in lengths])
    return Sublots(
        count=count,
        first=np.cumsum(count) - count,
        lengths=np.concatenate(lengths),
        last_sample=np.concatenate([each[1:] - 1 for each in cuts]),
        number=np.concatenate([np.repeat(np.arange(len(each)), each) for each in lengths]),
    )
