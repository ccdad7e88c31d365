"""A bound on one variant by branch and bound over parts, with labels on (node, hosts opened).

Stronger than the linear relaxation where the bottleneck decides, since no slower stage is mixed in.
The part with the weakest bound is worked on next.
"""

import math

from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.exact.branch_and_bound import Part
from stagecut.planner.solvers.search.search import Search


class LabelBound:
    """Branch and bound over the plans of one variant.

    Parameters
    ----------
    low_s
        Bound known already.
    """

    def __init__(self, search: Search, rows: Rows, low_s: float) -> None:
        self._search = search
        self._parts = [Part(search, rows, low_s)]
        self._done_s = math.inf

    @property
    def bound_s(self) -> float:
        """No plan is faster, save those simulated on the way; infinite if there are none."""
        return min([self._done_s, *(part.low_s for part in self._parts)])

    @property
    def num_arcs(self) -> int:
        """Of the networks of all parts left."""
        return sum(len(part.rows.network.arcs) for part in self._parts)

    @property
    def settled(self) -> bool:
        """Whether only splitting on a stage can raise the bound further."""
        return not self._parts or (self._weakest.narrow and self._weakest.is_single)

    def raise_to(self, limit_s: float, *, may_split: bool, max_steps: int) -> None:
        """Raise the bound, at most to the limit, in so many steps: decisions and divisions."""
        for _ in range(max_steps):
            self._done_s = min([self._done_s, *(part.low_s for part in self._parts if part.low_s >= limit_s)])
            self._parts = [part for part in self._parts if part.low_s < limit_s]
            if not self._parts or self._search.out_of_budget:
                break
            weakest = self._weakest
            if not weakest.ready:
                weakest.advance(limit_s)
            elif may_split or not weakest.is_single:
                self._parts.remove(weakest)
                with self._search.step("branching"):
                    self._parts += weakest.divided(limit_s)
            else:
                break

    @property
    def _weakest(self) -> Part:
        return min(self._parts, key=lambda part: part.low_s)
