"""Dynamic program over the stage network, exact for the shared rows (busy, fill and sync).

It finds the optimum of the rows by bisection over T; :mod:`stagecut.planner.solvers.exact.decision` answers for each T.
Labels are (node, hosts opened per class): exponential in the number of classes. Bisection without
positions comes first: what it proves leaves few arcs to be built with positions.
"""

import math
from contextlib import suppress

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.decode import decode_path
from stagecut.planner.network.labels.counted_paths import TooManyLabelsError
from stagecut.planner.network.pruning import arc_prices
from stagecut.planner.network.rows import SHARED_FAMILIES, Rows, build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.slicing import searched_bound
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from stagecut.planner.solvers.exact.decision import Decision
from stagecut.planner.solvers.heuristic import greedy
from stagecut.planner.solvers.search.search import Search

# Half or twice each of these changed neither plan nor bound for vgg16 on hetpipe-16.
NARROW_BRACKET = 1e-3
"""Relative width of the interval below which beating the best value outright is tried."""
FIRST_STEP, STEP_GROWTH = 4e-3, 4.0
"""How far above the bound without positions to look first, relative, and the factor to look further each time."""


def solve(problem: Problem, search: Search) -> Result:
    """Best plan of the shared rows over all variants; the value of its rows is the bound.

    Where the labels do not fit in memory, or the budget ends, the bound is what was proven by then.

    Raises
    ------
    UnsupportedError
        If the job allows interleaved plans.
    """
    if Schedule.INTERLEAVED in problem.job.schedules:
        raise UnsupportedError(
            f"solver 'dp' does not support schedule {Schedule.INTERLEAVED}: leave that schedule out, or use 'milp'"
        )
    greedy.solve(problem, search)
    bisection = _Bisection(search)
    floor_s = min(bisection.prove(variant) for variant in promising_first(problem, search))
    known = floor_s >= bisection.least_s * (1 - 2 * EQUAL_TIMES)
    exhausted = known and bisection.least_s == math.inf
    search.raise_bound(bisection.least_s if known else floor_s)
    return search.result(
        "dp",
        proves=True,
        exhausted=exhausted,
        row_bound_s=bisection.least_s if known and not exhausted else None,
    )


def promising_first(problem: Problem, search: Search) -> list[Variant]:
    """The variants, that of the best plan known first: it makes the others easy to rule out."""
    best = None if search.best_plan is None else search.best_plan.variant
    return sorted(problem.variants, key=lambda variant: variant != best)


class _Bisection:
    """The search over T, for one variant after the other."""

    def __init__(self, search: Search) -> None:
        self.least_s = math.inf  # Least value of the shared rows over all plans found so far.
        self._low_s = 0.0  # No plan of the variant has smaller rows, except those found.
        self._search = search
        if search.best_plan is not None:
            self._note(search.best_plan)

    def prove(self, variant: Variant) -> float:
        """A bound on the rows of all plans of the variant but those found, as high as budget and memory allow."""
        self._low_s = 0.0
        self._fixing = ArcFixing.without_prices(self._search.problem.cluster)
        with self._search.surviving(), suppress(TooManyLabelsError):
            self._run(variant)
        return self._low_s

    def _run(self, variant: Variant) -> None:
        if self._search.out_of_budget:
            return
        network = build_network(self._search.costs, variant, longest_s=self.least_s, room_bytes=self._search.room_bytes)
        rows, _ = self._fixed(build_rows(network, shared_only=True), self.least_s)
        self._bisect_without_positions(rows)
        step_s = FIRST_STEP * self._low_s
        while self._may_improve:
            target_s = self._low_s + step_s if 0 < step_s < self._low_s else math.inf
            self._bisect(rows, min(target_s, self.least_s))
            step_s *= STEP_GROWTH

    def _note(self, plan: Plan) -> None:
        value_s = searched_bound(self._search.costs, plan, SHARED_FAMILIES)
        self.least_s = min(self.least_s, value_s)

    @property
    def _may_improve(self) -> bool:
        return self._low_s < self.least_s * (1 - EQUAL_TIMES) and not self._search.out_of_budget

    def _bisect_without_positions(self, rows: Rows) -> None:
        """Halve the interval until it is narrow; where labels do not fit in memory, only arc fixing proves anything."""
        high_s = self.least_s
        if math.isinf(high_s):
            high_s = rows.value(rows.network.graph.shortest_path(rows.round_trip))
        while high_s - self._low_s > NARROW_BRACKET * high_s and self._may_improve:
            middle_s = (self._low_s + high_s) / 2
            found = self._below(rows, middle_s, must_fit=False)
            if found is None:
                self._low_s = middle_s
            else:
                rows, path = found
                high_s = min(middle_s, rows.value(path))

    def _bisect(self, rows: Rows, target_s: float) -> None:
        """Ask at the upper end first, then halve the interval; once it is narrow, do both in turn."""
        rows, outright = self._with_positions(rows, target_s), True
        while self._low_s < target_s and self._may_improve:
            high_s = min(target_s, self.least_s * (1 - EQUAL_TIMES))
            attempt_s = high_s if outright else (self._low_s + high_s) / 2
            found = self._below(rows, attempt_s, must_fit=True)
            if found is None:
                self._low_s = attempt_s
                outright = high_s - attempt_s <= NARROW_BRACKET * high_s
            else:
                (rows, _), outright = found, False

    def _with_positions(self, rows: Rows, target_s: float) -> Rows:
        """The rows of plans below a target."""
        rows, kept = self._fixed(rows, target_s)
        if len(kept) == 0:
            return rows
        network = with_positions(rows.network, longest_s=target_s)
        self._search.count("arcs with positions", len(network.arcs))
        return build_rows(network, shared_only=True)

    def _below(self, rows: Rows, limit_s: float, *, must_fit: bool) -> tuple[Rows, Ints] | None:
        """The rows over the arcs that plans below the limit may use, and a path over them, which is simulated."""
        rows, kept = self._fixed(rows, limit_s)
        if len(kept) == 0:
            return None
        path = self._path_below(rows, limit_s, must_fit=must_fit)
        if path is None:
            return None
        plan = decode_path(rows.network, path)
        if plan is not None:
            self._search.offer([plan])
            self._note(plan)
        return rows, path

    def _fixed(self, rows: Rows, limit_s: float) -> tuple[Rows, Ints]:
        return self._fixing.remaining(rows, limit_s, stop=lambda: self._search.out_of_budget)

    def _path_below(self, rows: Rows, limit_s: float, *, must_fit: bool) -> Ints | None:
        self._search.count("decisions")
        try:
            found = Decision(rows, room_bytes=self._search.room_bytes).path_below(limit_s)
        except TooManyLabelsError:
            if must_fit:
                raise
            return rows.network.graph.shortest_path(rows.round_trip + arc_prices(rows, self._fixing.prices))
        return None if found is None else found.path
