"""The optimum of the shared rows (busy, fill and sync) over the plans of one variant, by MIPs alone.

No plan is excluded: it serves to compare formulations, see docs/solver.md.
"""

from collections.abc import Callable
from functools import partial

from stagecut.planner.core.numerics.tolerances import PATH_SUM
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.rows import Rows, build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.solvers.exact.agenda import Outcome
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from stagecut.planner.solvers.exact.mip_rounds import MipRounds, first_round
from stagecut.planner.solvers.search.search import Search


class SharedRowsProof:
    """The bound of one variant in the shared rows."""

    is_small = False

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.bound_s = 0.0
        """No plan has smaller rows."""
        self.row_bound_s: float | None = None
        """Least value of the rows over all plans of the variant, once solved to optimality."""
        self._stalled = False  # whether the last MIP ended without an answer: another try would end the same way
        self._is_empty = False  # whether no plan is left to look at
        self._next: Callable[[Search], None] = self._build

    @property
    def is_stuck(self) -> bool:
        """Whether another step would prove nothing more."""
        return self._stalled or self.row_bound_s is not None

    def step(self, search: Search) -> Outcome:
        """Build the network, find multipliers, or solve the next MIP."""
        if search.best_s == 0:
            self.row_bound_s = 0.0
        else:
            self._next(search)
        return Outcome((), self.bound_s) if self._is_empty else Outcome((self,))

    def _build(self, search: Search) -> None:
        """The network, with positions at the end, of the plans that are no worse than the best one."""
        limit_s, fixing = _limit_s(search), ArcFixing.without_prices(search.costs.of(self.variant.share).cluster)

        def fixed(rows: Rows) -> Rows:
            with search.step("arc fixing"):
                return fixing.remaining(rows, limit_s, stop=lambda: search.out_of_budget)[0]

        with search.step("network"):
            network = build_network(search.costs, self.variant, longest_s=search.best_s, room_bytes=search.room_bytes)
        search.count("arcs without positions", len(network.arcs))
        rows = fixed(build_rows(network, shared_only=True))
        search.count("arcs without positions, after arc fixing", len(rows.network.arcs))
        if len(rows.network.arcs):
            with search.step("positions"):
                network = with_positions(rows.network, longest_s=search.best_s)
            rows = fixed(build_rows(network, shared_only=True))
        if len(rows.network.arcs) == 0:
            self.bound_s, self._is_empty = limit_s, True
        self._next = partial(self._fix, rows)

    def _fix(self, rows: Rows, search: Search) -> None:
        bound_s, rounds = first_round(search, rows, _limit_s(search))
        self._raise(search, bound_s)
        self._next = partial(self._solve, rounds)

    def _solve(self, rounds: MipRounds, search: Search) -> None:
        found = rounds.solve_next(search, self.bound_s, _limit_s(search))
        self.bound_s = max(self.bound_s, found.bound_s)
        self.row_bound_s, self._stalled = found.row_bound_s, found.stopped

    def _raise(self, search: Search, bound_s: float) -> None:
        self.bound_s = max(self.bound_s, min(_limit_s(search), bound_s))


def _limit_s(search: Search) -> float:
    """Plans whose rows reach this are no better than the best one; rounding aside, the best one stays below."""
    return search.best_s * (1 + PATH_SUM)
