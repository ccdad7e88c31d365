"""Dynamic programme over the stage network, exact for the shared rows (busy, fill and sync).

Whether any plan keeps all rows below T is decided by shrinking the bottleneck t:

    fill rows:  total + max over stages of X_s <= T, with X_s = (M - 1)(F_s + B_s) - (k_s - 1) F_s;
    f(t) = least total over paths whose stages have X <= t and meet busy and sync rows in time for T.

A plan below T has total >= f(t), hence X <= T - f(t) =: t'; repeating with t' until the path found
meets its own limit, or none is left, decides the question. Busy rows are limits on the round trip
before a stage, so the least round trip per label dominates; sync rows are limits on its forward
part. Bisection over T then finds the optimum of the rows.

Labels are (node, hosts opened per class): exponential in the number of classes.
"""

import math

import numpy as np

from planner.core.errors import UnsupportedError
from planner.core.problem import Problem, Variant
from planner.core.result import Result
from planner.cost.plan_costs import Floats, Ints
from planner.network.arcs import Bools
from planner.network.counted_paths import CountedPaths, Criteria
from planner.network.decode import decode_path
from planner.network.lagrangian import price, single_family
from planner.network.pareto_paths import TooManyLabelsError, pareto_path
from planner.network.rows import SHARED_FAMILIES, Rows, build_rows
from planner.network.stage_network import build_network
from planner.simulator.bounds import lower_bound
from planner.solvers import greedy
from planner.solvers.search import ROUNDING, Search
from planner.solvers.shortage import find_shortages

MAX_LABELS = 40_000_000
BISECT_ABOVE = 1e-6
"""Relative width of the interval below which the best plan known is tried to be beaten outright."""


def solve(problem: Problem, search: Search) -> Result:
    """Best plan of the shared rows over all variants; the value of its rows is the bound."""
    greedy.solve(problem, search)
    optimum = RowOptimum(search)
    floors_s = [optimum.improve(variant) for variant in problem.variants]
    floor_s = min(floors_s)
    known = floor_s >= optimum.value_s * (1 - 2 * ROUNDING)
    exhausted = known and optimum.value_s == math.inf
    search.raise_bound(optimum.value_s if known else floor_s)
    return search.result(
        "dp",
        proves=True,
        exhausted=exhausted,
        row_bound_s=optimum.value_s if known and not exhausted else None,
        shortages=find_shortages(problem) if exhausted else (),
    )


class RowOptimum:
    """Least value of the shared rows met so far, over the variants tried so far."""

    def __init__(self, search: Search) -> None:
        self._search = search
        plan = search.best_plan
        self.value_s = math.inf if plan is None else lower_bound(search.costs.plan(plan), SHARED_FAMILIES)

    def improve(self, variant: Variant) -> float:
        """Find the optimum of the variant's rows if it is below `value_s`.

        Returns
        -------
        float
            No plan of the variant has smaller rows, and none that beats `value_s` is left untried
            unless the budget ran out.

        Raises
        ------
        UnsupportedError
            If the labels would not fit in memory.
        """
        search = self._search
        rows = build_rows(build_network(search.costs, variant, longest_s=self.value_s), shared_only=True)
        low_s = 0.0
        for name in ("fill", "busy"):
            priced = price(rows, single_family(rows, name))
            low_s = max(low_s, min(priced.bound_s, self.value_s))
            network, kept = rows.network.restricted(priced.through_s <= self.value_s)
            rows = rows.restricted(network, kept)
        if len(rows.network.arcs) == 0:
            return self.value_s
        if CountedPaths.size(rows.network) > MAX_LABELS:
            raise UnsupportedError(
                f"solver dp: {CountedPaths.size(rows.network):,} labels for micro-batch {variant.micro_batch} are more "
                f"than the {MAX_LABELS:,} it keeps; use solver milp"
            )
        return self._bisect(Decision(rows), low_s)

    def _bisect(self, decision: "Decision", low_s: float) -> float:
        search = self._search
        while low_s < self.value_s * (1 - ROUNDING) or self.value_s == math.inf:
            if search.out_of_budget:
                return low_s
            wide = self.value_s - low_s > BISECT_ABOVE * self.value_s
            attempt_s = (low_s + self.value_s) / 2 if wide else self.value_s * (1 - ROUNDING)
            try:
                path = decision.path_below(attempt_s)
            except TooManyLabelsError:
                return low_s
            search.count("decisions")
            if path is None:
                low_s = attempt_s
                if attempt_s == math.inf:
                    return math.inf
                continue
            self.value_s = decision.rows.value(path)
            plan = decode_path(decision.rows.network, path)
            assert plan is not None
            search.offer([plan])
        return low_s


class Decision:
    """Is there a plan of one variant whose shared rows stay at or below T?"""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        by_name = {family.name: _cover(family.cover) for family in rows.families}
        self._bottleneck, self._busy, self._sync = by_name["fill"], by_name["busy"], by_name["sync"]
        self._paths = CountedPaths(rows.network)

    def path_below(self, limit_s: float) -> Ints | None:
        """Such a path, None if there is none.

        Raises
        ------
        TooManyLabelsError
            If the two lengths disagree and the exact labels outgrow what is sensible.
        """
        criteria = Criteria(
            round_trip=self.rows.round_trip,
            forward=self.rows.forward,
            latest_round_trip=limit_s - self._busy,
            latest_forward=limit_s - self._sync,
        )
        bottleneck_s, exact = math.inf, False
        while True:
            usable = self._bottleneck <= bottleneck_s
            path = self._cheapest(criteria, usable, exact=exact)
            if path is None:
                return None
            bottleneck_s = limit_s - float(self.rows.round_trip[path].sum())
            if self._bottleneck[path].max() > bottleneck_s:
                continue
            if exact or self._in_time(path, criteria):
                return path
            exact = True

    def _cheapest(self, criteria: Criteria, usable: Bools, *, exact: bool) -> Ints | None:
        if exact:
            return pareto_path(self.rows.network, criteria, usable)
        return self._paths.cheapest(criteria, usable)

    def _in_time(self, path: Ints, criteria: Criteria) -> bool:
        forward_before = np.cumsum(self.rows.forward[path]) - self.rows.forward[path]
        return bool((forward_before <= criteria.latest_forward[path]).all())


def _cover(cover: Floats | None) -> Floats:
    assert cover is not None
    return cover
