"""Prices of hosts that make the shortest path through a network long: a Lagrangian dual, by cutting planes.

    max over mu >= 0 of g(mu),   g(mu) = min over paths of (round trip + mu x hosts opened) - mu N,

with a reward for every stage as the last of the prices, is concave and piecewise linear. Each shortest
path found is a cut of a small linear program; the next prices are half way from the best ones so far
to its optimum.
"""

from collections.abc import Callable

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.network.pruning import arc_prices
from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.search.highs import LinearProgram, SolveOutcome, solve_linear
from stagecut.planner.solvers.search.options import StopCheck

MAX_ROUNDS = 40
GAIN_TOLERANCE = 1e-3
"""The search ends when the relative gain still possible is no more than this."""
HIGHEST = 1e4
"""The highest price of a host, in shortest round trips without prices. Where the hosts do not suffice, the length grows
with the prices without end, and what many micro-batches take is only reached by high ones."""


def find_host_prices(rows: Rows, start: Floats, *, stop: StopCheck) -> Floats:
    """Prices of hosts and of a stage, shape (server classes + 1,), from those to begin with."""

    def shortest(prices: Floats) -> tuple[float, Floats] | None:
        path = rows.network.graph.shortest_path(rows.round_trip + arc_prices(rows, prices))
        return (float(rows.round_trip[path].sum()), _used(rows, path)) if len(path) else None

    return best_prices(shortest, rows.network.limits, start, stop=stop)


def best_prices(
    shortest: Callable[[Floats], tuple[float, Floats] | None], limits: Floats, start: Floats, *, stop: StopCheck
) -> Floats:
    """Good prices of what is limited, where a path uses some of it, from those to begin with.

    `shortest` gives length and use of a shortest path at some prices, the length without them; None if there is none.
    """
    lengths, slopes = [], []
    prices, best, best_value = start, start, -np.inf
    for _ in range(MAX_ROUNDS):
        found = shortest(prices)
        if found is None:
            break
        length, slope = found[0], found[1] - limits
        lengths.append(length)
        slopes.append(slope)
        value = length + float(prices @ slope)
        if value > best_value:
            best, best_value = prices, value
        highest = HIGHEST * max(lengths[0], np.finfo(float).tiny) / np.maximum(1.0, np.abs(limits))
        target, most = _best_of_cuts(np.array(lengths), np.array(slopes), highest, stop)
        if target is None or most - best_value <= GAIN_TOLERANCE * abs(most) or stop():
            break
        prices = (best + target) / 2
    return best


def _used(rows: Rows, path: Ints) -> Floats:
    """Number of hosts of each class that a path opens, and minus the number of its stages."""
    arcs = rows.network.arcs
    used = np.zeros(len(rows.network.limits))
    opening = path[arcs.opened_hosts[path] > 0]
    np.add.at(used, arcs.opened_class[opening], arcs.opened_hosts[opening])
    used[-1] = -np.count_nonzero(arcs.is_stage[path])
    return used


def _best_of_cuts(lengths: Floats, slopes: Floats, highest: Floats, stop: StopCheck) -> tuple[Floats | None, float]:
    """Largest z subject to z <= length_k + slope_k mu, 0 <= mu <= highest; z is the first column."""
    num_cuts, num_classes = slopes.shape
    scale = float(lengths.max()) or 1.0
    grid_row, grid_column = np.indices((num_cuts, num_classes + 1))
    program = LinearProgram(
        cost=np.concatenate(([-1.0], np.zeros(num_classes))),
        lower=np.concatenate(([-np.inf], np.zeros(num_classes))),
        upper=np.concatenate(([np.inf], highest / scale)),
        row_lower=np.full(num_cuts, -np.inf),
        row_upper=lengths / scale,
        entry_row=grid_row.ravel(),
        entry_column=grid_column.ravel(),
        entry_value=np.column_stack((np.ones(num_cuts), -slopes)).ravel(),
    )
    answer = solve_linear(program, time_limit_s=np.inf, stop=stop)
    if answer.outcome is not SolveOutcome.OPTIMAL:
        return None, np.inf
    return np.maximum(0.0, answer.columns[1:]) * scale, float(answer.columns[0]) * scale
