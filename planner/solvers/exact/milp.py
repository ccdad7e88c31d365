"""The default solver: bound, branch, fix, solve a mixed-integer program, exclude.

From the plan of `greedy`, always the variant (schedule, micro-batch size, share of the cluster) with
the lowest bound next; the phases of its proof are the methods of :class:`VariantProof`, in order:

1. **bound**: build the stage network without positions and fix arcs: those that no plan below the
   limit uses are left out, with prices on hosts; then raise the bound by labels that count hosts;
2. **branch**: on the number of stages, into networks with positions, and on stages;
3. **fix**: once a few thousand arcs are left, find multipliers on the bound rows and fix arcs by them;
4. **MIP** over the rest with HiGHS: either no plan's rows stay below the cutoff, or
5. **exclude**: the best such plan is simulated and excluded from the next MIP.

The limit is the best simulated time less the gap asked for, so every better plan makes all that
follows easier. The search ends when the bound of every variant meets it.

The mathematics: rows in :mod:`stagecut.planner.simulator.bounds`, arc fixing in
:mod:`stagecut.planner.network.pruning`, labels in :mod:`stagecut.planner.solvers.exact.decision`, multipliers in
:mod:`stagecut.planner.network.lagrangian`, the MIP in :mod:`stagecut.planner.solvers.exact.mixed_integer_program`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.tolerances import MIP_BOUND, PATH_SUM
from stagecut.planner.network.interval_network import IntervalNetwork, build_intervals
from stagecut.planner.network.lagrangian import price, single_family
from stagecut.planner.network.pruning import position_ranges
from stagecut.planner.network.rows import Rows, build_rows
from stagecut.planner.network.stage_network import build_network, num_with_positions, with_positions
from stagecut.planner.solvers.exact import mip_rounds
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from stagecut.planner.solvers.exact.branch_and_bound import BranchAndBound
from stagecut.planner.solvers.exact.dp import promising_first
from stagecut.planner.solvers.exact.mip_rounds import MipRounds, simulate_path
from stagecut.planner.solvers.exact.multipliers import improve_multipliers
from stagecut.planner.solvers.heuristic import greedy
from stagecut.planner.solvers.interleaved.proof import InterleavedProof
from stagecut.planner.solvers.search.options import RowChoice
from stagecut.planner.solvers.search.search import Search
from stagecut.planner.solvers.sublots.proof import SublotProof

FIRST_SHARES = (0.9, 0.6)
"""Shares of the limit to try to prove at the start, so that a search that ends early has a bound to show; without them
no plan and no final bound changed on vgg16 and resnet50 on mixed-server-8 and gpt2-345m on dgx-a100-16."""
LABEL_STEPS = 4
"""Decisions and branchings by labels in one step; 1 and 8 changed no plan and no bound on vgg16 and resnet50 on
mixed-server-8."""
PRICED_ARCS = 3000
"""With no more arcs than this, multipliers are sought; with more, labels branch. Half and twice as many changed no plan
and no count on vgg16 on hetpipe-16 and bert-large on commodity-32."""
LARGEST_NETWORK = 100_000
"""A network with positions of more arcs than this is not built (memory); half and twice as many: as above."""


def solve(problem: Problem, search: Search) -> Result:
    """Best plan and a proven bound over the whole search space.

    In the shared rows the bound is their optimum and nothing more: no plan is excluded.
    """
    with search.step("greedy"):
        greedy.solve(problem, search)
    proofs = [
        *(
            (InterleavedProof if variant.schedule is Schedule.INTERLEAVED else VariantProof)(search, variant)
            for variant in promising_first(problem, search)
        ),
        *(SublotProof(search, variant) for variant in problem.unequal_variants),
    ]
    with search.surviving():
        _advance(search, proofs)
    search.raise_bound(min(proof.bound_s for proof in proofs))
    exhausted = search.bound_s == math.inf
    return search.result("milp", proves=True, exhausted=exhausted, row_bound_s=_row_bound(proofs))


def _advance(search: Search, proofs: Sequence["Proof"]) -> None:
    """Take the next step of the weakest proof, until the bound is good enough or the budget is spent."""
    for proof in proofs:
        if not search.out_of_budget:
            proof.advance()
    while not search.out_of_budget:
        weakest = min(proofs, key=lambda proof: proof.bound_s)
        search.raise_bound(weakest.bound_s)
        # In the shared rows only their optimum settles it, whatever the gap.
        settled = weakest.row_bound_s is not None if search.options.rows is RowChoice.SHARED else search.closed
        if weakest.stalled or weakest.bound_s == math.inf or settled:
            break
        weakest.advance()


Phase = Callable[[], "Phase"]
"""Takes one step of the proof of a variant; returns what comes next."""


class VariantProof:
    """The bound of one variant."""

    def __init__(self, search: Search, variant: Variant) -> None:
        self.variant = variant
        self.bound_s = 0.0
        """No plan of the variant is faster, except those already simulated."""
        self.row_bound_s: float | None = None
        """Least value of the rows over all plans of the variant, once solved to optimality."""
        self.stalled = False
        """Whether the last MIP ended without an answer; another try would end the same way."""
        self._search = search
        self._shared = search.options.rows is RowChoice.SHARED
        self._fixing = ArcFixing(len(search.problem.cluster.servers), lambda: search.out_of_budget)
        self._next: Phase = self._build

    def advance(self) -> None:
        """Take the next step, unless no plan of interest is left."""
        if self._search.best_s == 0:
            self.row_bound_s = 0.0
        elif self._is_open:
            self._next = self._next()
        if not self._is_open:
            self._next = self._build  # Never called again; the networks are freed.

    @property
    def _is_open(self) -> bool:
        return self._shared or self.bound_s < self._limit_s

    @property
    def _limit_s(self) -> float:
        """Plans whose rows reach this are of no interest: they cannot open the gap again."""
        search = self._search
        return search.best_s * (1 + PATH_SUM if self._shared else 1 - search.options.gap)

    def _build(self) -> Phase:
        """The network without positions, what arc fixing leaves of it, and a first bound."""
        search = self._search
        intervals = None if self._shared else self._first_stages()
        with search.step("network"):
            network = build_network(
                search.costs,
                self.variant,
                longest_s=search.best_s,
                room_bytes=search.room_bytes,
                intervals=intervals,
            )
            rows = build_rows(network, shared_only=self._shared)
        search.count("arcs without positions", len(rows.network.arcs))
        rows = self._fixed(rows, self._limit_s)
        search.count("arcs without positions, after arc fixing", len(rows.network.arcs))
        self._raise(self._first_bound(rows))
        if self._shared:
            return partial(self._add_positions, rows, None)
        labels = BranchAndBound(search, rows, 0.0)
        # A bound that rests on HiGHS cannot close such a gap.
        needs_labels = search.options.gap < 10 * MIP_BOUND
        return self._branch(labels, then=None if needs_labels else partial(self._add_positions, rows, labels))

    def _first_stages(self) -> IntervalNetwork:
        """What arc fixing leaves before there are arcs."""
        search = self._search
        with search.step("network"):
            intervals = build_intervals(search.costs, self.variant, longest_s=search.best_s)
        search.count("stages", len(intervals))
        with search.step("arc fixing"):
            return self._fixing.first(intervals, self._limit_s)

    def _first_bound(self, rows: Rows) -> float:
        """A share of the limit that arc fixing alone proves: something to show, and an order for the variants."""
        if len(rows.network.arcs) == 0:
            return self._limit_s
        for share in FIRST_SHARES if math.isfinite(self._limit_s) else ():
            rows = self._fixed(rows, share * self._limit_s)
            if len(rows.network.arcs) == 0:
                return share * self._limit_s
        return 0.0

    def _branch(self, labels: BranchAndBound, *, then: Phase | None) -> Phase:
        """Labels: bisection until only branching on stages is left, then that too until few arcs are left.

        `then` is what follows; with None labels go on to the end.
        """

        def step() -> Phase:
            labels.raise_to(self._limit_s, may_split=labels.settled, max_steps=LABEL_STEPS)
            self._raise(labels.bound_s)
            return then if then is not None and labels.settled and labels.num_arcs <= PRICED_ARCS else step

        return step

    def _add_positions(self, coarse: Rows, labels: BranchAndBound | None) -> Phase:
        """The network with positions, if it is small enough to be built."""
        rows = self._fixed(coarse, self._limit_s)
        if len(rows.network.arcs):
            with self._search.step("positions"):
                ranges = position_ranges(rows, self._fixing.prices, self._limit_s)
                if self._shared or num_with_positions(rows.network, ranges) <= LARGEST_NETWORK:
                    network = with_positions(rows.network, ranges=ranges, longest_s=self._search.best_s)
                    rows = self._fixed(build_rows(network, shared_only=self._shared), self._limit_s)
        if labels is not None and len(rows.network.arcs) > PRICED_ARCS:
            return self._branch(labels, then=None)
        return partial(self._fix, rows, labels)

    def _fix(self, rows: Rows, labels: BranchAndBound | None) -> Phase:
        """Leave out the arcs that good multipliers prove too slow."""
        search = self._search
        start = price(rows, single_family(rows, "fill"))
        first = rows.network.graph.shortest_path(start.costs_s)
        scale_s = min(search.best_s, rows.value(first)) or float(rows.round_trip.sum()) or 1.0
        search.count("arcs before fixing", len(rows.network.arcs))
        with search.step("multipliers"):
            priced = improve_multipliers(
                rows, start, scale_s=scale_s, time_limit_s=search.seconds_left, stop=lambda: search.out_of_budget
            )
        simulate_path(search, rows.network, rows.network.graph.shortest_path(priced.costs_s))
        network, kept = rows.network.restricted(priced.through_s < self._limit_s)
        self._raise(priced.bound_s)
        search.count("arcs after fixing", len(kept))
        if labels is not None and len(kept) > mip_rounds.EASY_ARCS:
            return self._branch(labels, then=None)
        rounds = MipRounds(search, rows.restricted(network, kept), priced.through_s[kept], scale_s)
        return partial(self._solve, rounds, labels)

    def _solve(self, rounds: MipRounds, labels: BranchAndBound | None) -> Phase:
        """One MIP; its plan is excluded from the next."""
        found = rounds.solve_next(self.bound_s, self._limit_s)
        self.bound_s = max(self.bound_s, found.bound_s)
        if self.row_bound_s is None:
            self.row_bound_s = found.row_bound_s
        if labels is not None and found.gives_up:
            return self._branch(labels, then=None)
        self.stalled = found.stopped
        return partial(self._solve, rounds, labels)

    def _fixed(self, rows: Rows, limit_s: float) -> Rows:
        with self._search.step("arc fixing"):
            return self._fixing.remaining(rows, limit_s)[0]

    def _raise(self, bound_s: float) -> None:
        self.bound_s = max(self.bound_s, min(self._limit_s, bound_s))


Proof = VariantProof | InterleavedProof | SublotProof


def _row_bound(proofs: Sequence[Proof]) -> float | None:
    """Least value of the rows over all variants, where it is known to be the least."""
    least = min((proof.row_bound_s for proof in proofs if proof.row_bound_s is not None), default=None)
    if least is None or any(proof.row_bound_s is None and proof.bound_s < least for proof in proofs):
        return None
    return least
