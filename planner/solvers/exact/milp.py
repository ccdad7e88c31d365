"""The default solver: bound, branch, fix, solve a mixed-integer program, exclude.

A bound on every variant (schedule, micro-batch size, share of the cluster) that needs no network comes first
(:mod:`stagecut.planner.solvers.exact.fluid_bound`), then the plan of `greedy`. From there the part of the plans with
the lowest bound is always next (:mod:`stagecut.planner.solvers.exact.agenda`). A part is

1. a **variant** (:class:`VariantProof`): stages that no plan below the limit uses are left out before they become arcs,
   which rules out most variants; then (:class:`IntervalProof`) the network without positions is built of the others;
2. a **node** (:mod:`stagecut.planner.solvers.exact.branch_and_bound`): labels that count hosts raise its bound, then it
   branches on the number of stages, into networks with positions, and on stages;
3. a **program** (:mod:`stagecut.planner.solvers.exact.mip_rounds`), of a node of few arcs whose labels would not fit in
   memory: good multipliers on the bound rows leave out more arcs, and a MIP over the rest with HiGHS shows that no
   plan's rows stay below the cutoff, or finds the best such plan, which is simulated and excluded from the next MIP.

The limit is the best simulated time less the gap asked for, so every better plan makes all that
follows easier. The search ends when the bound of every part meets it.

The mathematics: rows in :mod:`stagecut.planner.simulator.bounds`, arc fixing in
:mod:`stagecut.planner.network.pruning`, labels in :mod:`stagecut.planner.solvers.exact.decision`, multipliers in
:mod:`stagecut.planner.network.lagrangian`, the MIP in :mod:`stagecut.planner.solvers.exact.mixed_integer_program`.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from stagecut.planner.core.messages.errors import StoppedError
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.interval_network import IntervalNetwork, build_intervals
from stagecut.planner.network.rows import Rows, build_rows
from stagecut.planner.network.stage_network import build_network
from stagecut.planner.solvers.exact.agenda import Agenda, Outcome, Part, limit_of
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from stagecut.planner.solvers.exact.branch_and_bound import Node
from stagecut.planner.solvers.exact.case_parts import CasePart
from stagecut.planner.solvers.exact.dp import promising_first
from stagecut.planner.solvers.exact.fluid_bound import fluid_bounds
from stagecut.planner.solvers.exact.shared_rows import SharedRowsProof
from stagecut.planner.solvers.heuristic import greedy
from stagecut.planner.solvers.interleaved.proof import InterleavedProof
from stagecut.planner.solvers.reference.even import offer_first
from stagecut.planner.solvers.search.cases import Case, cases_of
from stagecut.planner.solvers.search.options import RowChoice
from stagecut.planner.solvers.search.search import Search
from stagecut.planner.solvers.sublots.proof import SublotProof

BISECTIONS = 5
"""How often arc fixing alone halves what is open of a variant before its network is built."""


def solve(problem: Problem, search: Search) -> Result:
    """Best plan and a proven bound over the whole search space.

    In the shared rows the bound is their optimum and nothing more: no plan is excluded.
    """
    cases = cases_of(problem)
    parts: Sequence[Part]
    polish: Sequence[Part]
    if cases is None:
        proofs, polish = _opened(problem, search)
        parts = proofs
    else:
        proofs, parts, polish = _opened_cases(problem, cases, search)
    agenda = Agenda(search, parts, polish)
    with search.surviving():
        agenda.run()
    search.raise_bound(agenda.bound_s)
    exhausted = search.bound_s == math.inf
    return search.result("milp", proves=True, exhausted=exhausted, row_bound_s=_row_bound(proofs))


def _opened(problem: Problem, search: Search) -> "tuple[list[Proof], list[PolishPart]]":
    """A good plan; the parts of the proof, and what may find better plans."""
    with search.step("greedy"):
        offer_first(search)
    _fluid_bounds(problem, search, at_once=True)
    floors_s = _fluid_bounds(problem, search)
    with search.step("greedy"):
        polishes = greedy.first_plans(problem, search, floors_s)
    proofs = [
        *(_proof(search, variant, floors_s.get(variant, 0.0)) for variant in promising_first(problem, search)),
        *(_OwnProof(search, SublotProof, variant) for variant in problem.unequal_variants),
    ]
    return proofs, [PolishPart(polish, search) for polish in polishes]


def _opened_cases(
    problem: Problem, cases: Sequence[Case], search: Search
) -> "tuple[list[Proof], list[CasePart], list[CasePart]]":
    """The same of problems that are the search space together, the most promising first; all parts of the proof.

    There are few cases without sharding, and many with: plans of the former come first, beside a bound on any plan that
    needs no framework.
    """
    proofs, parts, polish = list[Proof](), list[CasePart](), list[CasePart]()
    floors_s, least_s = dict[Case, dict[Variant, float]](), dict[Case, float]()
    groups = [[case for case in cases if (case.problem.roles is None) == is_alike] for is_alike in (True, False)]
    for group in groups:
        floors_s |= {case: _fluid_bounds(case.problem, case.entered(search)) for case in group}
        least_s |= {case: min(floors_s[case].values(), default=0.0) for case in group}
        is_all = len(least_s) == len(cases)
        search.raise_bound(min(least_s.values(), default=math.inf) if is_all else _free_bound_s(problem, search))
        for case in sorted(group, key=least_s.__getitem__):
            if search.out_of_budget or least_s[case] >= search.best_s:
                break
            with case.inside(search) as own, own.step("greedy"):
                polishes = greedy.first_plans(case.problem, own, floors_s[case])
            polish += (CasePart(case, PolishPart(each, case.entered(search))) for each in polishes)
    for case in cases:
        own = case.entered(search)
        of_case = [_proof(own, variant, floors_s[case].get(variant, 0.0)) for variant in case.problem.variants]
        proofs += of_case
        parts += (CasePart(case, proof) for proof in of_case)
    return proofs, parts, polish


def _free_bound_s(problem: Problem, search: Search) -> float:
    """What plans take at least that need no framework."""
    free = Case(replace(problem, job=replace(problem.job, framework=None)))
    return min(_fluid_bounds(free.problem, free.entered(search)).values(), default=0.0)


def _fluid_bounds(problem: Problem, search: Search, *, at_once: bool = False) -> dict[Variant, float]:
    """What holds for the plans of each variant, whatever its network; nothing is known for those not included."""
    # The optimum of the shared rows may be below any such bound.
    if search.options.rows is RowChoice.SHARED or search.out_of_budget:
        return {}
    variants = problem.variants
    with search.step("fluid bounds"):
        bounds_s = fluid_bounds(search.costs, variants, enough_s=search.best_s, at_once=at_once).tolist()
    if not problem.unequal_variants:
        search.raise_bound(min(bounds_s))
    return dict(zip(variants, bounds_s, strict=True))


PIECES = 4
"""Pieces of polishing at a step, of some hundredths of a second each."""


class PolishPart:
    """Proves nothing: looks for better plans, a few pieces of that work at a step."""

    bound_s = math.inf
    is_stuck = is_small = False

    def __init__(self, polish: greedy.Improvement, search: Search) -> None:
        self._search = search.fork()
        self._pieces = polish.pieces(self._search)

    def step(self, search: Search) -> Outcome:
        """Go on from the best plan known."""
        self._search.follow(search)
        with search.step("local search"):
            deque(islice(self._pieces, PIECES), maxlen=0)
        search.absorb(self._search)
        return Outcome(())


class VariantProof:
    """All plans of one variant, before its network is built."""

    is_stuck = is_small = False
    row_bound_s = None

    def __init__(self, variant: Variant, bound_s: float) -> None:
        self.variant, self.bound_s = variant, bound_s

    def step(self, search: Search) -> Outcome:
        """Leave out stages before they become arcs; with the bound that shows what is left is ready to be built."""
        limit_s = limit_of(search)
        with search.step("network"):
            intervals = build_intervals(search.costs, self.variant, longest_s=limit_s)
        search.count("variants looked at")
        search.count("stages", len(intervals))
        fixing = ArcFixing.without_prices(search.problem.cluster)
        with search.step("arc fixing"):
            intervals = fixing.first(intervals, limit_s, stop=lambda: search.out_of_budget)
            search.count("stages, after arc fixing", len(intervals))
            if len(intervals) == 0:
                return Outcome((), limit_s)
            bound_s = self._raised(search, intervals, limit_s)
        return Outcome((IntervalProof(self.variant, bound_s, intervals, fixing),), limit_s)

    def _raised(self, search: Search, intervals: IntervalNetwork, high_s: float) -> float:
        """The bound after a few bisections of what is left between it and the limit."""
        low_s, fixing = self.bound_s, ArcFixing.without_prices(search.problem.cluster)
        for _ in range(BISECTIONS if math.isfinite(high_s) else 0):
            if search.out_of_budget:
                break
            middle_s = (low_s + high_s) / 2
            left = fixing.first(intervals, middle_s, stop=lambda: search.out_of_budget)
            if len(left):
                high_s, intervals = middle_s, left
            else:
                low_s = middle_s
        return low_s


class IntervalProof:
    """The plans of one variant that have the stages left."""

    is_stuck = is_small = False

    def __init__(self, variant: Variant, bound_s: float, intervals: IntervalNetwork, fixing: ArcFixing) -> None:
        self.variant, self.bound_s = variant, bound_s
        self._intervals, self._fixing = intervals, fixing

    def step(self, search: Search) -> Outcome:
        """The network without positions, and what arc fixing leaves of it."""
        limit_s, fixing = limit_of(search), self._fixing
        with search.step("arc fixing"):
            left = fixing.first(self._intervals, limit_s, stop=lambda: search.out_of_budget)
        try:
            rows = self._built(search, left, limit_s)
        except StoppedError:
            return Outcome((self,))
        search.count("variants built")
        search.count("arcs without positions", len(rows.network.arcs))
        with search.step("arc fixing"):
            rows, kept = fixing.remaining(rows, limit_s, stop=lambda: search.out_of_budget)
        search.count("arcs without positions, after arc fixing", len(kept))
        return Outcome((Node(rows, self.bound_s, prices=fixing.prices),) if len(kept) else (), limit_s)

    def _built(self, search: Search, left: IntervalNetwork, limit_s: float) -> Rows:
        with search.step("network"):
            network = build_network(
                search.costs,
                self.variant,
                longest_s=limit_s,
                room_bytes=search.room_bytes,
                intervals=left,
                stop=lambda: search.out_of_budget,
            )
            return build_rows(network)


class _OwnProof:
    """A proof of one variant that keeps its own account of its parts."""

    is_small = False

    def __init__(
        self,
        search: Search,
        kind: type[InterleavedProof] | type[SublotProof],
        variant: Variant,
        bound_s: float = 0.0,
    ) -> None:
        self.bound_s = bound_s
        self._search = search.fork()
        self._proof = kind(self._search, variant)

    @property
    def row_bound_s(self) -> float | None:
        """Least value of the rows over all plans, once it is known."""
        return self._proof.row_bound_s

    @property
    def is_stuck(self) -> bool:
        """Whether another step would prove nothing more."""
        return self._proof.stalled or self.row_bound_s is not None

    def step(self, search: Search) -> Outcome:
        """The next step of the proof."""
        self._search.follow(search)
        self._proof.advance()
        search.absorb(self._search)
        self.bound_s = max(self.bound_s, self._proof.bound_s)
        return Outcome((self,))


Proof = VariantProof | SharedRowsProof | _OwnProof


def _proof(search: Search, variant: Variant, bound_s: float) -> Proof:
    if variant.schedule is Schedule.INTERLEAVED:
        return _OwnProof(search, InterleavedProof, variant, bound_s)
    if search.options.rows is RowChoice.SHARED:
        return SharedRowsProof(variant)
    return VariantProof(variant, bound_s)


def _row_bound(proofs: Sequence[Proof]) -> float | None:
    """Least value of the rows over all variants, where it is known to be the least."""
    least = min((proof.row_bound_s for proof in proofs if proof.row_bound_s is not None), default=None)
    if least is None or any(proof.row_bound_s is None and proof.bound_s < least for proof in proofs):
        return None
    return least
