"""Good multipliers: the duals of the linear relaxation.

They are clipped and normalised, so that they give a valid bound whatever HiGHS returned, and then priced over all
arcs (:mod:`stagecut.planner.network.lagrangian`).
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.network.lagrangian import Multipliers, Priced, price
from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.exact.mixed_integer_program import stage_program
from stagecut.planner.solvers.search.highs import SolveOutcome, solve_linear
from stagecut.planner.solvers.search.options import StopCheck

MISSING_PENALTY = 10.0
"""Price of a missing host in the relaxation, in iteration times, far above its worth; 5 and 20 changed no plan and no
bound on vgg16 on hetpipe-16 and gpt2-345m on mixed-server-8 in the shared rows."""


def improve_multipliers(rows: Rows, start: Priced, *, scale_s: float, time_limit_s: float, stop: StopCheck) -> Priced:
    """The better of the given multipliers and those of the relaxation; `scale_s` is some iteration time near the bound.

    All arcs go into one linear program: column generation was no faster for the 47,000 of resnet50 on hetpipe-16.
    """
    if stop():
        return start
    program, slices = stage_program(rows.scaled(1 / scale_s), integer=False, missing_penalty=MISSING_PENALTY)
    answer = solve_linear(program, time_limit_s=time_limit_s, stop=stop)
    if answer.outcome is not SolveOutcome.OPTIMAL:
        return start
    found = price(rows, _multipliers(rows, answer.row_duals, slices, scale_s))
    return max(start, found, key=lambda priced: priced.bound_s)


def _multipliers(rows: Rows, duals: Floats, slices: list[slice], scale_s: float) -> Multipliers:
    """Duals made safe: clipped at zero, summing to one over each target."""
    num_layers = rows.network.num_layers
    of_rows = np.zeros((len(rows.families), num_layers + 1))
    for index, family in enumerate(rows.families):
        of_rows[index, family.indices(num_layers)] = np.maximum(0.0, duals[slices[index]])
    _normalise(of_rows, np.array([family.target for family in rows.families]))
    return Multipliers(of_rows=of_rows, of_hosts=np.maximum(0.0, -duals[slices[-1]]) * scale_s)


def _normalise(of_rows: Floats, targets: Ints) -> None:
    """Make the rows of T, with the two halves of a flush counted once, sum to one, and the halves agree."""
    # T >= T_1 + T_2: a weight on that row needs the same weight on the rows of T_1 and on those of T_2.
    sums = np.array([of_rows[targets == target].sum() for target in range(3)])
    if sums[1] > 0 and sums[2] > 0:
        half = (sums[1] + sums[2]) / 2
        of_rows[targets == 1] *= half / sums[1]
        of_rows[targets == 2] *= half / sums[2]
    else:
        half = 0.0
        of_rows[targets > 0] = 0.0
    of_rows /= sums[0] + half or 1.0
