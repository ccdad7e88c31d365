"""Dynamic programme over the stage network, exact for the shared rows (busy, fill and sync).

The optimum of the rows by bisection over T; :mod:`planner.solvers.decision` answers for each T.
Labels are (node, hosts opened per class): exponential in the number of classes.
"""

import math

from planner.core.problem import Problem, Variant
from planner.core.result import Result
from planner.network.counted_paths import CountedPaths
from planner.network.decode import decode_path
from planner.network.lagrangian import price, single_family
from planner.network.pareto_paths import TooManyLabelsError
from planner.network.rows import SHARED_FAMILIES, Rows, build_rows
from planner.network.stage_network import build_network
from planner.simulator.bounds import lower_bound
from planner.solvers import greedy
from planner.solvers.decision import Decision
from planner.solvers.search import ROUNDING, Search
from planner.solvers.shortage import DIAGNOSIS_S, find_shortages

NARROW = 1e-3
"""Relative width of the interval from which the best value is worth trying to beat outright."""
WORTHWHILE = 0.8
"""Share of the arcs below which leaving out the others pays for setting up the labels anew."""


def solve(problem: Problem, search: Search) -> Result:
    """Best plan of the shared rows over all variants; the value of its rows is the bound.

    Where the labels would not fit in memory, or the budget ends, the bound is what was proven by then.
    """
    greedy.solve(problem, search)
    optimum = RowOptimum(search)
    floor_s = min(optimum.improve(variant) for variant in promising_first(problem, search))
    known = floor_s >= optimum.value_s * (1 - 2 * ROUNDING)
    exhausted = known and optimum.value_s == math.inf
    search.raise_bound(optimum.value_s if known else floor_s)
    return search.result(
        "dp",
        proves=True,
        exhausted=exhausted,
        row_bound_s=optimum.value_s if known and not exhausted else None,
        shortages=find_shortages(problem, stop=search.stop_after(DIAGNOSIS_S)) if exhausted else (),
    )


def promising_first(problem: Problem, search: Search) -> list[Variant]:
    """The variants, the one of the best plan known first: it makes the others easy to rule out."""
    best = None if search.best_plan is None else search.best_plan.variant
    return sorted(problem.variants, key=lambda variant: variant != best)


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
            No plan of the variant has smaller rows, save those found.
        """
        network = build_network(self._search.costs, variant, longest_s=self.value_s)
        rows, low_s = build_rows(network, shared_only=True), 0.0
        for name in ("busy", "fill"):
            rows, proven_s = self._without_slow_arcs(rows, name)
            low_s = max(low_s, proven_s)
        if len(rows.network.arcs) == 0:
            return self.value_s
        if not CountedPaths.fit(rows.network):
            return low_s
        try:
            return self._bisect(rows, low_s)
        except TooManyLabelsError:
            return low_s

    def _without_slow_arcs(self, rows: Rows, family: str) -> tuple[Rows, float]:
        """Leave out arcs that no plan below `value_s` uses; also a bound on all such plans."""
        priced = price(rows, single_family(rows, family))
        network, kept = rows.network.restricted(priced.through_s <= self.value_s)
        return rows.restricted(network, kept), min(priced.bound_s, self.value_s)

    def _bisect(self, rows: Rows, low_s: float) -> float:
        """First try to beat the best value outright, then halve the interval; near its end do both in turn."""
        search, decision = self._search, Decision(rows)
        outright = True
        while low_s < self.value_s * (1 - ROUNDING) or math.isinf(self.value_s):
            if search.out_of_budget:
                break
            attempt_s = self.value_s * (1 - ROUNDING) if outright else (low_s + self.value_s) / 2
            path = decision.path_below(attempt_s)
            search.count("decisions")
            if path is None:
                low_s = attempt_s
                outright = self.value_s - low_s <= NARROW * self.value_s
                if math.isinf(attempt_s):
                    break
                continue
            outright = False
            self.value_s = rows.value(path)
            plan = decode_path(rows.network, path)
            assert plan is not None
            search.offer([plan])
            fewer, _ = self._without_slow_arcs(rows, "fill")
            if len(fewer.network.arcs) < WORTHWHILE * len(rows.network.arcs):
                rows, decision = fewer, Decision(fewer)
        return low_s
