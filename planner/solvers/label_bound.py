"""A bound on one variant by branch and bound, with labels on (node, hosts opened).

A part is a set of plans, the paths over some of the arcs. :mod:`planner.solvers.decision` raises its
bound by bisection over T. Stronger than the linear relaxation where the bottleneck decides, since
no slower stage is mixed in. The parts are first the numbers of stages; the weakest one is raised
next, and once its bisection is over it is split in two: plans with one stage of the path that labels
found, and plans without it.
"""

import math
from collections.abc import Iterator

import numpy as np

from planner.core.plan import Plan
from planner.cost.plan_costs import Ints
from planner.network.arcs import Bools
from planner.network.decode import decode_path
from planner.network.layout import layout_of
from planner.network.rows import Rows
from planner.simulator.bounds import bound_rows
from planner.solvers.decision import Decision
from planner.solvers.local_search import improve
from planner.solvers.moves import LAYER_MOVES
from planner.solvers.search import Search

WORTH_IMPROVING = 1.03
"""Layers are moved in plans that are no slower than this times the best one."""
PRECISION = 1e-4
"""Relative width of an interval at which its bisection stops."""
FIRST_STEP, STEP_GROWTH = 2e-4, 4.0
"""A part made by a split is asked just above the bound of its parent first, then further and further up."""


class LabelBound:
    """Branch and bound over the plans of one variant.

    Parameters
    ----------
    low_s
        Bound known already.
    """

    def __init__(self, search: Search, rows: Rows, low_s: float) -> None:
        self._search = search
        self._parts = [Part(search, rows, low_s, step_s=math.inf)]
        self._whole = True

    @property
    def bound_s(self) -> float:
        """No plan is faster, save those simulated on the way; infinite once none is left."""
        return min((part.low_s for part in self._parts), default=math.inf)

    @property
    def settled(self) -> bool:
        """Whether only splitting on a stage can raise the bound further."""
        return not self._whole and bool(self._parts) and self._weakest.narrow

    def raise_to(self, limit_s: float, *, may_split: bool, max_steps: int) -> None:
        """Raise the bound, at most to the limit, in so many steps: decisions and splits."""
        for _ in range(max_steps):
            if not self._parts or self.bound_s >= limit_s or self._search.out_of_budget:
                break
            weakest = self._weakest
            if not weakest.narrow:
                weakest.advance(limit_s)
            elif self._whole or may_split:
                self._parts.remove(weakest)
                self._parts += weakest.by_num_stages() if self._whole else weakest.split()
                self._whole = False
            else:
                break

    @property
    def _weakest(self) -> "Part":
        return min(self._parts, key=lambda part: part.low_s)


class Part:
    """Some of the plans: none below `low_s`, and at the upper end labels find a path.

    Parameters
    ----------
    step_s
        First step above `low_s`; infinite: ask at the limit first.
    """

    def __init__(self, search: Search, rows: Rows, low_s: float, *, step_s: float) -> None:
        self.low_s = low_s
        self._step_s = step_s
        self._high_s = math.inf
        self._path: Ints | None = None
        self._plan: Plan | None = None
        self._search, self._rows = search, rows
        self._decision: Decision | None = None

    @property
    def narrow(self) -> bool:
        """Whether further halving would bring nothing."""
        return self._path is not None and self._high_s - self.low_s <= PRECISION * self._high_s

    def advance(self, limit_s: float) -> None:
        """Ask once more: in growing steps above the bound until a path is found, then in the middle."""
        self._decision = self._decision or Decision(self._rows)
        attempt_s = min(self.low_s + self._step_s, limit_s, (self.low_s + self._high_s) / 2)
        path = self._decision.path_below(attempt_s)
        self._search.count("decisions")
        if path is None:
            self.low_s = attempt_s
            self._step_s *= STEP_GROWTH
        else:
            self._high_s, self._path = attempt_s, path
            self._try(path)

    def by_num_stages(self) -> Iterator["Part"]:
        """One part for every number of stages."""
        arcs = self._rows.network.arcs
        for position in np.unique(arcs.position[arcs.tail == 0]):
            yield from self._restricted((arcs.tail != 0) | (arcs.position == position), step_s=math.inf)

    def split(self) -> Iterator["Part"]:
        """Plans with, and plans without, one stage of the path; none once the path is the only plan."""
        assert self._path is not None
        self._search.count("splits")
        arcs = self._rows.network.arcs
        stages = self._path[arcs.is_stage[self._path]]
        chosen = self._stage_to_branch_on(stages)
        if chosen is None:
            return
        numbers = np.arange(len(arcs))
        overlapping = (arcs.start < arcs.stop[chosen]) & (arcs.stop > arcs.start[chosen])
        step_s = FIRST_STEP * self.low_s
        yield from self._restricted(~overlapping | (numbers == chosen), step_s=step_s)
        yield from self._restricted(numbers != chosen, step_s=step_s)

    def _stage_to_branch_on(self, stages: Ints) -> int | None:
        """Of the stages that have alternatives, the one with the largest row of its own."""
        arcs = self._rows.network.arcs
        assert self._plan is not None
        rows = bound_rows(self._search.costs.plan(self._plan))
        largest_s = np.maximum(rows["drain"], rows["late"])
        for index in np.argsort(-largest_s, kind="stable"):
            arc = stages[index]
            rivals = arcs.is_stage & (arcs.start < arcs.stop[arc]) & (arcs.stop > arcs.start[arc])
            if np.count_nonzero(rivals) > 1:
                return int(arc)
        return None

    def _restricted(self, chosen: Bools, *, step_s: float) -> Iterator["Part"]:
        network, kept = self._rows.network.restricted(chosen)
        if len(kept):
            yield Part(self._search, self._rows.restricted(network, kept), self.low_s, step_s=step_s)

    def _try(self, path: Ints) -> None:
        """Simulate the plan of a path and, where it comes close to the best one, move its layers about."""
        search, plan = self._search, decode_path(self._rows.network, path)
        assert plan is not None
        self._plan = plan
        (seconds,) = search.offer([plan])
        if self._step_s == math.inf and seconds <= WORTH_IMPROVING * search.best_s:
            improve(search, plan.variant, layout_of(search.costs, plan), seconds, moves=LAYER_MOVES)
