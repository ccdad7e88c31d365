"""Is there a plan of one variant whose rows stay at or below T?

Decided by shrinking the bottleneck t. Fill rows ask that total + X <= T for every stage, with
X = (M - 1)(F + B) - (k - 1) F; let f(t) be the least total over paths whose stages have X <= t and
meet the other rows in time for T. A plan below T has total >= f(t), hence X <= T - f(t) =: t';
repeating with t' until the path found meets its own limit, or none is left, decides the question.

Busy rows limit the round trip before a stage, so the least round trip per label dominates. Sync
rows limit the forward part before it. The further rows only sharpen the limits: with G the least
round trip from the end of a stage to the sink over usable arcs, a drain row needs

    D + (F + B) + G + (M - 1)(F + B) - (k - 1) F + g <= T   for the forward part D before the stage,

a link row is a bottleneck of its transfer, and a flush makes X = (M - 1)(F + B) under GPipe.
"""

import math

import numpy as np

from planner.cost.plan_costs import Floats, Ints
from planner.network.arcs import Bools
from planner.network.counted_paths import CountedPaths, Criteria
from planner.network.pareto_paths import pareto_path
from planner.network.rows import Family, Rows


class Decision:
    """The question for one set of rows, to be asked for several T.

    Parameters
    ----------
    rows
        With the shared families only, the answer is exact. With further families, they are used
        as far as single arcs show them: a path found may still break one of them, but where none
        is found there is none.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        families = {family.name: family for family in rows.families}
        self._busy, self._sync = _cover(families["busy"]), _cover(families["sync"])
        self._bottleneck = _cover(families["fill"])
        self._drain = _cover(families["drain"]) if "drain" in families else None
        self._exact = self._drain is None
        if "link" in families:
            self._bottleneck = np.maximum(self._bottleneck, _starting(families["link"]))
        if "flush forward" in families:
            both = _cover(families["flush forward"]) + _cover(families["flush backward"])
            self._bottleneck = np.maximum(self._bottleneck, both)
        self._paths = CountedPaths(rows.network)

    def path_below(self, limit_s: float) -> Ints | None:
        """Such a path, None if there is none.

        Raises
        ------
        TooManyLabelsError
            If the question needs exact Pareto sets and they outgrow what is sensible.
        """
        bottleneck_s, pareto = math.inf, False
        while True:
            usable = self._bottleneck <= bottleneck_s
            criteria = self._criteria(limit_s, usable)
            path = self._cheapest(criteria, usable, pareto=pareto)
            if path is None:
                return None
            bottleneck_s = limit_s - float(self.rows.round_trip[path].sum())
            if self._bottleneck[path].max() > bottleneck_s:
                continue
            if pareto or not self._exact or self._in_time(path, criteria):
                return path
            pareto = True

    def _criteria(self, limit_s: float, usable: Bools) -> Criteria:
        rows = self.rows
        graph = rows.network.graph
        to_sink_s = graph.to_sink(np.where(usable, rows.round_trip, np.inf))[graph.head]
        rest_s = rows.round_trip + to_sink_s
        latest_forward = limit_s - self._sync
        if self._drain is not None:
            latest_forward = np.minimum(latest_forward, limit_s - self._drain - rest_s)
        return Criteria(
            round_trip=rows.round_trip,
            forward=rows.forward,
            latest_round_trip=limit_s - np.maximum(self._busy, self._bottleneck + rest_s),
            latest_forward=np.where(rows.network.arcs.is_stage, latest_forward, np.inf),
        )

    def _cheapest(self, criteria: Criteria, usable: Bools, *, pareto: bool) -> Ints | None:
        if pareto:
            return pareto_path(self.rows.network, criteria, usable)
        return self._paths.cheapest(criteria, usable)

    def _in_time(self, path: Ints, criteria: Criteria) -> bool:
        forward_before = np.cumsum(self.rows.forward[path]) - self.rows.forward[path]
        return bool((forward_before <= criteria.latest_forward[path]).all())


def _cover(family: Family) -> Floats:
    assert family.cover is not None
    return family.cover


def _starting(family: Family) -> Floats:
    assert family.starting is not None
    return family.starting
