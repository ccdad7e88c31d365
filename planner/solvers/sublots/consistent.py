"""Consistent sublots: the same sublots, of free lengths, in all processes; a linear program."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.messages.errors import StagecutError
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.solvers.search.highs import LinearProgram, SolveOutcome, solve_linear


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentSublots:
    """Lengths of sublots that all processes share, and when the last one leaves."""

    lengths: Floats
    """Samples of each sublot; any numbers of at least zero whose sum is N."""
    makespan_s: float


def consistent_sublots(
    setups_s: Sequence[float], per_sample_s: Sequence[float], *, num_samples: int, num_sublots: int
) -> ConsistentSublots:
    """Lengths of least makespan for so many sublots that all processes share.

    With u_j the length of sublot j, a_i and c_i the setup and the time per sample of process i, C_ij the time
    when sublot j leaves it, and C_0j = C_i0 = 0:

        min C_mJ   subject to   sum over j of u_j = N,
        C_ij >= C_i,j-1 + a_i + c_i u_j,    C_ij >= C_i-1,j + a_i + c_i u_j

    Every sublot takes its setups, even one of length zero, so the least over the numbers of sublots is asked for
    number by number.
    """
    num_processes = len(setups_s)
    scale_s = num_sublots * sum(setups_s) + num_samples * sum(per_sample_s) or 1.0
    rows: list[dict[int, float]] = [dict.fromkeys(range(num_sublots), 1.0)]
    lower, upper = [1.0], [1.0]
    for process, sublot in itertools.product(range(num_processes), range(num_sublots)):
        left = num_sublots * (process + 1) + sublot
        length = {sublot: -per_sample_s[process] * num_samples / scale_s}
        before = [{left - 1: -1.0}] * (sublot > 0) + [{left - num_sublots: -1.0}] * (process > 0)
        for waits in before or [{}]:
            rows.append({left: 1.0, **length, **waits})
            lower.append(setups_s[process] / scale_s)
            upper.append(np.inf)
    entries = [(number, column, value) for number, row in enumerate(rows) for column, value in row.items()]
    num_columns = num_sublots * (num_processes + 1)
    cost = np.zeros(num_columns)
    cost[-1] = 1.0
    program = LinearProgram(
        cost=cost,
        lower=np.zeros(num_columns),
        upper=np.full(num_columns, np.inf),
        row_lower=np.array(lower),
        row_upper=np.array(upper),
        entry_row=np.array([entry[0] for entry in entries]),
        entry_column=np.array([entry[1] for entry in entries]),
        entry_value=np.array([entry[2] for entry in entries]),
    )
    answer = solve_linear(program)
    if answer.outcome is not SolveOutcome.OPTIMAL:
        raise StagecutError(f"consistent sublots: HiGHS ended with {answer.outcome}")
    return ConsistentSublots(lengths=num_samples * answer.columns[:num_sublots], makespan_s=scale_s * answer.objective)
