"""A bound on one variant by bisection over T, with labels on (node, hosts opened).

Stronger than the linear relaxation where the bottleneck decides, since no stage slower than it is
mixed in; weaker in rows of two stages, which labels do not see.
"""

import math

from planner.cost.plan_costs import Ints
from planner.network.counted_paths import CountedPaths
from planner.network.decode import decode_path
from planner.network.layout import layout_of
from planner.network.rows import Rows
from planner.solvers.decision import Decision
from planner.solvers.local_search import improve
from planner.solvers.moves import LAYER_MOVES
from planner.solvers.search import Search

MAX_LABELS = 40_000_000
WORTH_IMPROVING = 1.01
"""Layers are moved in plans that are no slower than this times the best one."""
PRECISION = 1e-4
"""Relative width of the interval at which the bisection stops."""


def bound_by_labels(search: Search, rows: Rows, *, low_s: float, limit_s: float) -> float:
    """Raise a bound as far as labels can, at most to `limit_s`; plans met on the way are simulated.

    Parameters
    ----------
    low_s
        Bound known already.
    """
    if len(rows.network.arcs) == 0 or CountedPaths.size(rows.network) > MAX_LABELS:
        return low_s
    decision = Decision(rows)
    high_s = attempt_s = limit_s
    while not search.out_of_budget:
        path = decision.path_below(attempt_s)
        search.count("decisions")
        if path is None:
            low_s = attempt_s
            if low_s >= high_s:
                break
        else:
            high_s = min(attempt_s, rows.value(path)) if math.isinf(attempt_s) else attempt_s
            _try(search, rows, path)
        if high_s - low_s <= PRECISION * high_s:
            break
        attempt_s = (low_s + high_s) / 2
    return low_s


def _try(search: Search, rows: Rows, path: Ints) -> None:
    """Simulate the plan of a path and, where it comes close to the best one, move its layers about."""
    plan = decode_path(rows.network, path)
    assert plan is not None
    (seconds,) = search.offer([plan])
    if seconds <= WORTH_IMPROVING * search.best_s:
        improve(search, plan.variant, layout_of(search.costs, plan), seconds, moves=LAYER_MOVES)
