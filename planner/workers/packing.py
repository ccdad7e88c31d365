"""Packing virtual workers into the cluster: how many of each pattern.

Sets
    p                       patterns that keep the period T
    k                       kinds of devices
    r                       priced sums of links, see `Chains.least_load`

Numbers
    a[p,k], n[k]            devices of kind k in the pattern, in the cluster
    load[r,p]               least priced seconds for which a wave of the worker occupies links
    room[r]                 priced seconds that the links have in T
    W                       workers
    c[p]                    any cost, to prefer some packings to others

Variables
    y[p] integer            workers of pattern p

Objective: min sum of c[p] y[p]

Constraints
    sum of y[p] = W                     or any number
    sum of a[p,k] y[p] <= n[k]          for every k
    sum of load[r,p] y[p] <= room[r]    for every r
    sum of y[p] over p in S >= 1        for every set S of patterns that the plan needs one of
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import MIP_BOUND
from stagecut.planner.solvers.search.highs import IntegerAnswer, LinearProgram, SolveOutcome, solve_integer
from stagecut.planner.workers.rows.kinds import Counts
from stagecut.planner.workers.wave_search import WaveSearch


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """One r."""

    load_s: Floats
    """By pattern, or by column if a pattern has several."""
    room_s: float


ROUGH = 0.05
"""Relative gap of packings of which any will do."""


class StoppedError(Exception):
    """The budget ended before an answer."""


def pack(
    search: WaveSearch,
    patterns: Sequence[Counts],
    counts: Ints,
    *,
    num_workers: int,
    covers: Sequence[Bools],
    cost: Floats,
    rows: Sequence[LoadRow],
) -> list[int] | None:
    """The indices of all workers' patterns, each as often as it is used; None if there is no packing.

    Raises
    ------
    StoppedError
        If the budget does not suffice for an answer.
    """
    if not patterns:
        return None
    numbers = num_workers, num_workers
    program = _program(np.array(patterns), counts, numbers=numbers, covers=covers, cost=cost, rows=rows)
    answer = _solved(search, program, gap=ROUGH)
    return None if answer is None else _chosen(answer)


def fastest_packing(
    search: WaveSearch, patterns: Sequence[Counts], rates: Floats, counts: Ints, *, most: int
) -> tuple[float, list[Counts]]:
    """The most that rates of workers add up to, as a bound, and patterns that come close to it; 0 if nothing fits.

    There are as many workers as stated, or up to `most`.

    Raises
    ------
    StoppedError
        If the budget does not suffice for an answer.
    """
    stated = search.num_workers
    if not patterns or (stated or 1) > most:
        return 0.0, []
    numbers = (1, most) if stated is None else (stated, stated)
    program = _program(np.array(patterns), counts, numbers=numbers, covers=(), cost=-rates, rows=())
    answer = _solved(search, program, gap=search.options.gap / 10)
    if answer is None:
        return 0.0, []
    return -answer.bound * float(rates.max()) * (1 + MIP_BOUND), [patterns[index] for index in _chosen(answer)]


def _solved(search: WaveSearch, program: LinearProgram, *, gap: float) -> IntegerAnswer | None:
    """The answer; None if the program is infeasible."""
    search.count("programs solved")
    answer = solve_integer(
        program,
        time_limit_s=search.seconds_left,
        stop=lambda: search.out_of_budget,
        on_solution=lambda _: None,
        threads=search.options.threads,
        seed=search.options.seed,
        gap=gap,
    )
    if answer.outcome is SolveOutcome.INFEASIBLE:
        return None
    if answer.columns is None:
        raise StoppedError
    return answer


def _chosen(answer: IntegerAnswer) -> list[int]:
    assert answer.columns is not None
    return np.repeat(np.arange(len(answer.columns)), np.rint(answer.columns).astype(int)).tolist()


def _program(
    patterns: Ints,
    counts: Ints,
    *,
    numbers: tuple[int, int],
    covers: Sequence[Bools],
    cost: Floats,
    rows: Sequence[LoadRow],
) -> LinearProgram:
    number = len(patterns)
    matrix: list[Floats] = [np.ones(number), *patterns.T.astype(float)]
    fewest, most = numbers
    lower, upper = [float(fewest), *(-np.inf for _ in counts)], [float(most), *counts.astype(float)]
    for row in rows:
        scale = row.room_s or 1.0
        matrix.append(row.load_s / scale)
        lower.append(-np.inf)
        upper.append(row.room_s / scale * (1 + MIP_BOUND))
    for some in covers:
        matrix.append(some.astype(float))
        lower.append(1.0)
        upper.append(np.inf)
    stacked = np.array(matrix)
    at = np.nonzero(stacked)
    scaled = cost / max(float(np.abs(cost).max()), 1e-300)
    return LinearProgram(
        cost=scaled,
        lower=np.zeros(number),
        upper=np.full(number, float(most)),
        row_lower=np.array(lower),
        row_upper=np.array(upper),
        entry_row=at[0],
        entry_column=at[1],
        entry_value=stacked[at],
        num_integer=number,
    )
