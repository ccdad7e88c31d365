"""Sublot sizes of least makespan as a mixed-integer program, stated sample by sample.

Independent of the label program, which must agree with it; see docs/sublots.md.

Sets
    l               lines: the forwards and, seen backwards in time, the backwards; or one line alone
    i               processes, in the order in which samples pass them; those of a line before i: i - 1
    n = 1 .. N      samples
    x in X_i        sizes of process i
    (f, b) in K     computations: a process of the first line, and the one of the second at the same place

Parameters (seconds, unless stated)
    b_ix(n), e_ix(n)    first and last sample of the sublot that holds n, where the size is x (samples)
    T_ix(n)             of that sublot
    r_i                 no sublot starts earlier
    H                   horizon: some choice of sizes takes no longer

Variables
    z_ix in {0, 1}      process i works with size x
    C_in in [0, H]      when sample n leaves process i

Program
    min  sum over l of C_iN at the last process i of l   subject to

    one_size    every process has one size
    release     the first sublot of a process waits for its release
    order       sublots pass a process one after another
    arrival     a sublot waits until all its samples have left the process before
    unions      sublots of a backward computation are unions of sublots of its forward

Each family is a function of that name. Times are in units of H, since HiGHS has absolute tolerances.
"""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stagecut.planner.solvers.search.highs import LinearProgram, solve_integer
from stagecut.planner.solvers.search.options import StopCheck
from stagecut.planner.sublots.labels import SublotChoice
from stagecut.planner.sublots.process_chain import Process, ProcessChain
from stagecut.planner.sublots.staircases import makespan_s

Place = tuple[int, int]
"""A process: number of its line, and its number in the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Sum of values times columns >= lower; or equal to it."""

    terms: Mapping[int, float]
    """Value by column."""
    lower: float = 0.0
    equal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublot:
    """Samples, from 0, that pass a process together, and how long they take in units of H."""

    first: int
    last: int
    duration: float


@dataclass(frozen=True, kw_only=True)
class SublotSizes:
    """Sets, parameters and columns of the program.

    Parameters
    ----------
    coupled
        Indices of the computations K in both lines.
    """

    lines: Sequence[ProcessChain]
    coupled: Collection[int] = ()

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """All processes, line by line."""
        return tuple((line, index) for line, chain in enumerate(self.lines) for index in range(len(chain.processes)))

    @cached_property
    def size_columns(self) -> Mapping[tuple[Place, int], int]:
        """Column of z by process and size; they come first."""
        options = ((place, size) for place in self.places for size in self.process(place).sizes)
        return {option: column for column, option in enumerate(options)}

    def left_column(self, place: Place, sample: int) -> int:
        """Column of C."""
        return len(self.size_columns) + self.places.index(place) * self.lines[0].num_samples + sample

    def process(self, place: Place) -> Process:
        """The process at a place."""
        return self.lines[place[0]].processes[place[1]]

    def sublot_of(self, place: Place, size: int, sample: int) -> Sublot:
        """The sublot that holds a sample."""
        cuts = self.lines[place[0]].cuts(size)
        number = int(np.searchsorted(cuts, sample, side="right")) - 1
        first, stop = int(cuts[number]), int(cuts[number + 1])
        # A sublot of more than H is in no choice worth finding; twice H keeps it out, and entries in reach of HiGHS.
        seconds = min(float(self.process(place).seconds[stop - first]), 2 * self.horizon_s)
        return Sublot(first=first, last=stop - 1, duration=seconds / self.horizon_s)

    @cached_property
    def pairs(self) -> Mapping[int, tuple[tuple[int, int], ...]]:
        """By computation: sizes of the forward and of the backward of which every end of a sublot is one of the other.

        Samples of the second line are counted from the end of the batch.
        """
        forward, backward = self.lines[0], self.lines[-1]
        return {
            index: tuple(
                (size, wider)
                for size, wider in itertools.product(forward.processes[index].sizes, backward.processes[index].sizes)
                if np.isin(forward.num_samples - backward.cuts(wider), forward.cuts(size)).all()
            )
            for index in self.coupled
        }

    @cached_property
    def horizon_s(self) -> float:
        """H: all processes one after another, each with the whole batch, with sizes that take the least in all."""
        passes = {
            (place, size): float(self.process(place).seconds[np.diff(self.lines[place[0]].cuts(size))].sum())
            for place, size in self.size_columns
        }
        alone = [place for place in self.places if place[1] not in self.coupled]
        least = [min(passes[place, size] for size in self.process(place).sizes) for place in alone]
        for index, pairs in self.pairs.items():
            least.append(min(passes[(0, index), size] + passes[(1, index), wider] for size, wider in pairs))
        return sum(least) + sum(self.process(place).release_s for place in self.places) or 1.0


def solve_program(sizes: SublotSizes, *, time_limit_s: float, stop: StopCheck = lambda: False) -> SublotChoice | None:
    """The best choice of sizes that HiGHS finds, and its bound; None if it finds none in time."""
    answer = solve_integer(
        sublot_program(sizes),
        time_limit_s=time_limit_s,
        stop=stop,
        on_solution=lambda _: None,
        threads=1,
        seed=0,
        gap=0.0,
    )
    if answer.columns is None:
        return None
    chosen = {place: size for (place, size), column in sizes.size_columns.items() if answer.columns[column] > 0.5}
    by_line = tuple(
        tuple(chosen[line, index] for index in range(len(chain.processes))) for line, chain in enumerate(sizes.lines)
    )
    seconds = sum(makespan_s(chain, of_line) for chain, of_line in zip(sizes.lines, by_line, strict=True))
    return SublotChoice(sizes=by_line, makespan_s=seconds, bound_s=answer.bound * sizes.horizon_s)


def sublot_program(sizes: SublotSizes) -> LinearProgram:
    """The whole program, as arrays."""
    families = (one_size(sizes), release(sizes), order(sizes), arrival(sizes), unions(sizes))
    rows = list(itertools.chain.from_iterable(families))
    num_columns = sizes.left_column(sizes.places[-1], sizes.lines[0].num_samples)
    cost = np.zeros(num_columns)
    for line, chain in enumerate(sizes.lines):
        cost[sizes.left_column((line, len(chain.processes) - 1), chain.num_samples - 1)] = 1.0
    entries = [(number, column, value) for number, row in enumerate(rows) for column, value in row.terms.items()]
    lower = np.array([row.lower for row in rows])
    return LinearProgram(
        cost=cost,
        lower=np.zeros(num_columns),
        upper=np.ones(num_columns),
        row_lower=lower,
        row_upper=np.where([row.equal for row in rows], lower, math.inf),
        entry_row=np.array([entry[0] for entry in entries]),
        entry_column=np.array([entry[1] for entry in entries]),
        entry_value=np.array([entry[2] for entry in entries]),
        num_integer=len(sizes.size_columns),
    )


def one_size(sizes: SublotSizes) -> Iterator[Row]:
    """Sum over x of z_ix = 1."""
    for place in sizes.places:
        columns = (sizes.size_columns[place, size] for size in sizes.process(place).sizes)
        yield Row(terms=dict.fromkeys(columns, 1.0), lower=1.0, equal=True)


def release(sizes: SublotSizes) -> Iterator[Row]:
    """C_i1 - sum over x of T_ix(1) z_ix >= r_i."""
    for place in sizes.places:
        terms = {sizes.left_column(place, 0): 1.0}
        for size in sizes.process(place).sizes:
            terms[sizes.size_columns[place, size]] = -sizes.sublot_of(place, size, 0).duration
        yield Row(terms=terms, lower=sizes.process(place).release_s / sizes.horizon_s)


def order(sizes: SublotSizes) -> Iterator[Row]:
    """C_in - C_i,n-1 - sum of T_ix(n) z_ix over the sizes x with b_ix(n) = n is at least 0, for n > 1."""
    for place, sample in itertools.product(sizes.places, range(1, sizes.lines[0].num_samples)):
        terms = {sizes.left_column(place, sample): 1.0, sizes.left_column(place, sample - 1): -1.0}
        for size in sizes.process(place).sizes:
            sublot = sizes.sublot_of(place, size, sample)
            if sublot.first == sample:
                terms[sizes.size_columns[place, size]] = -sublot.duration
        yield Row(terms=terms)


def arrival(sizes: SublotSizes) -> Iterator[Row]:
    """C_in - C_i-1,m - sum of T_ix(n) z_ix over e_ix(n) >= m + H times that of z_ix over e_ix(n) < m is at least 0.

    For every process but the first of a line, every n, and m each of the e_ix(n): where the sublot of n holds m as
    well, its samples leave no sooner than m has left the process before.
    """
    for place, sample in itertools.product(sizes.places, range(sizes.lines[0].num_samples)):
        line, index = place
        parts = {size: sizes.sublot_of(place, size, sample) for size in sizes.process(place).sizes}
        for last in sorted({part.last for part in parts.values()} if index > 0 else ()):
            terms = {sizes.left_column(place, sample): 1.0, sizes.left_column((line, index - 1), last): -1.0}
            for size, part in parts.items():
                terms[sizes.size_columns[place, size]] = -part.duration if part.last >= last else 1.0
            yield Row(terms=terms)


def unions(sizes: SublotSizes) -> Iterator[Row]:
    """Sum of z_by over the sizes y that make b of unions of sublots of size x of f, less z_fx, is at least 0."""
    for index, pairs in sizes.pairs.items():
        for size in sizes.process((0, index)).sizes:
            terms = {sizes.size_columns[(1, index), wider]: 1.0 for each, wider in pairs if each == size}
            yield Row(terms={sizes.size_columns[(0, index), size]: -1.0, **terms})
