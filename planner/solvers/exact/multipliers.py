"""Good multipliers by column generation on arcs.

A small linear program over the arcs seen so far gives duals; they are smoothed towards the best
ones known, all arcs are priced at once (:mod:`stagecut.planner.network.lagrangian`), and the cheapest are added.
"""

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.network.lagrangian import Multipliers, Priced, price
from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.exact.mixed_integer_program import stage_program
from stagecut.planner.solvers.search.highs import SolveOutcome, solve_linear
from stagecut.planner.solvers.search.options import StopCheck

GAP_TOLERANCE = 2e-4
"""Stop when the bound is within this of the small program's value, relative."""
FIRST_ARCS, MORE_ARCS, MAX_ROUNDS = 1500, 800, 30
MISSING_PENALTY = 10.0
"""Price of a missing host in the relaxation, in iteration times: far above its worth."""


def improve_multipliers(
    rows: Rows,
    start: Priced,
    *,
    scale_s: float,
    cutoff_s: float,
    time_limit_s: float,
    stop: StopCheck,
) -> Priced:
    """Column generation on arcs from given multipliers.

    Parameters
    ----------
    cutoff_s
        Stop when the bound reaches it.

    Returns
    -------
    Priced
        The best bound found.
    """
    best = start
    chosen = np.zeros(len(rows.network.arcs), dtype=bool)
    _add_cheapest(chosen, start.through_s, FIRST_ARCS)
    for _ in range(MAX_ROUNDS):
        if stop() or best.bound_s >= cutoff_s:
            break
        duals, value_s = _solve_small(rows, chosen, scale_s, time_limit_s, stop)
        if duals is None:
            break
        latest = price(rows, duals)
        best = max(best, latest, price(rows, _mean(best.multipliers, duals)), key=lambda priced: priced.bound_s)
        if value_s - best.bound_s <= GAP_TOLERANCE * value_s:
            break
        added = _add_cheapest(chosen, latest.through_s, MORE_ARCS // 2)
        added += _add_cheapest(chosen, best.through_s, MORE_ARCS // 2)
        if added == 0:
            break
    return best


def _solve_small(
    rows: Rows, chosen: Bools, scale_s: float, time_limit_s: float, stop: StopCheck
) -> tuple[Multipliers | None, float]:
    network, kept = rows.network.restricted(chosen)
    small = rows.restricted(network, kept).scaled(1 / scale_s)
    program, slices = stage_program(small, integer=False, missing_penalty=MISSING_PENALTY)
    answer = solve_linear(program, time_limit_s=time_limit_s, stop=stop)
    if answer.outcome is not SolveOutcome.OPTIMAL:
        return None, np.inf
    return _multipliers(rows, answer.row_duals, slices, scale_s), answer.objective * scale_s


def _multipliers(rows: Rows, duals: Floats, slices: list[slice], scale_s: float) -> Multipliers:
    """Duals of the small program made safe: clipped at zero, summing to one over each target."""
    num_layers = rows.network.num_layers
    of_rows = np.zeros((len(rows.families), num_layers + 1))
    for index, family in enumerate(rows.families):
        of_rows[index, family.indices(num_layers)] = np.maximum(0.0, duals[slices[index]])
    _normalise(of_rows, np.array([family.target for family in rows.families]))
    return Multipliers(of_rows=of_rows, of_hosts=np.maximum(0.0, -duals[slices[-1]]) * scale_s)


def _normalise(of_rows: Floats, targets: Ints) -> None:
    """Make the rows of T, with the two halves of a flush counted once, sum to one, and the halves agree."""
    sums = np.array([of_rows[targets == target].sum() for target in range(3)])
    if sums[1] > 0 and sums[2] > 0:
        half = (sums[1] + sums[2]) / 2
        of_rows[targets == 1] *= half / sums[1]
        of_rows[targets == 2] *= half / sums[2]
    else:
        half = 0.0
        of_rows[targets > 0] = 0.0
    of_rows /= sums[0] + half or 1.0


def _mean(one: Multipliers, other: Multipliers) -> Multipliers:
    return Multipliers(
        of_rows=0.5 * one.of_rows + 0.5 * other.of_rows, of_hosts=0.5 * one.of_hosts + 0.5 * other.of_hosts
    )


def _add_cheapest(chosen: Bools, through_s: Floats, count: int) -> int:
    """Choose up to `count` further arcs of the smallest through-cost; returns how many."""
    others = np.flatnonzero(~chosen & np.isfinite(through_s))
    if len(others) > count:
        others = others[np.argpartition(through_s[others], count - 1)[:count]]
    chosen[others] = True
    return len(others)
