"""The search over meshes: expert schemes, coordinate descent, exact."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from stagecut.planner.choice_graphs.solving.solve import solve
from stagecut.planner.core.numerics.tolerances import RECOMPUTED
from stagecut.planner.core.result import Status
from stagecut.planner.core.units import format_bytes
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.coordinate_descent import coordinate_descent
from stagecut.planner.sharding_search.experts import experts_on
from stagecut.planner.sharding_search.method import Method
from stagecut.planner.sharding_search.scheme_result import Scheme, SchemeObserver, SchemeResult
from stagecut.planner.sharding_search.sharding_costs import sharding_costs
from stagecut.planner.sharding_search.sharding_graph import ShardingGraph, sharding_graph
from stagecut.planner.solvers.search.budget import Budget, RunLimits
from stagecut.planner.solvers.search.options import SolveOptions

LEAST_S = 0.05
"""Of a search on one mesh."""


def scheme_of(graph: ShardingGraph, choices: Sequence[int], *, name: str) -> Scheme:
    """A choice decoded and recomputed."""
    sharding = graph.decode(choices)
    return Scheme(name=name, case=graph.case, sharding=sharding, costs=sharding_costs(graph.case, sharding))


def expert_schemes(case: ShardingCase) -> Iterator[Scheme]:
    """Every expert scheme for the mesh of a case, whether it fits or not; layers meet in the cheapest states."""
    roomy = replace(case, device=replace(case.device, memory_bytes=float("inf")))
    for expert in experts_on(case):
        graph = sharding_graph(roomy, allowed=expert.allowed(case))
        result = solve(graph.graph, SolveOptions(time_limit_s=None, gap=0.0))
        if result.choices is not None:
            found = scheme_of(graph, result.choices, name=expert.name)
            yield replace(found, case=case)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """What is known about one case."""

    bound_s: float | None
    """None: no choice is legal."""
    illegal: str | None = None
    """Why."""


class SchemeSearch(Budget):
    """One search over cases, in the order given."""

    def __init__(
        self,
        cases: Sequence[ShardingCase],
        method: Method,
        options: SolveOptions,
        *,
        tied: bool = True,
        observer: SchemeObserver = lambda _: None,
        **limits: Unpack[RunLimits],
    ) -> None:
        super().__init__(options, **limits)
        self._cases, self._method, self._tied = cases, method, tied
        self._observer = observer
        self._best: dict[str, Scheme] = {}
        self._proofs: list[_Proof] = []

    def run(self) -> SchemeResult:
        """Search every case; whatever ends the search, the result has the best schemes found by then."""
        with self.surviving():
            for case in self._unless_over(self._cases):
                for scheme in expert_schemes(case):
                    self._offer(scheme)
            if self._method is not Method.EXPERTS:
                for index, case in enumerate(self._unless_over(self._cases)):
                    self._search(case, num_left=len(self._cases) - index)
        return self._result()

    def _unless_over(self, cases: Sequence[ShardingCase]) -> Iterator[ShardingCase]:
        return itertools.takewhile(lambda _: not self.out_of_budget, cases)

    def _search(self, case: ShardingCase, *, num_left: int) -> None:
        graph = sharding_graph(case, tied=self._tied)
        if self._method is Method.COORDINATE_DESCENT:
            choices = coordinate_descent(graph.graph, seed=self.options.seed, stop=lambda: self.out_of_budget)
            if choices is not None:
                self._offer(scheme_of(graph, choices.tolist(), name=str(self._method)))
            return
        own_s = None if math.isinf(self.seconds_left) else max(LEAST_S, self.seconds_left / num_left)
        result = solve(graph.graph, replace(self.options, time_limit_s=own_s), cancelled=self._cancelled)
        if result.choices is not None:
            self._offer(scheme_of(graph, result.choices, name=str(self._method)))
        self.fault = self.fault or result.fault
        bound_s = None if result.status is Status.INFEASIBLE else graph.least_s(result.bound)
        illegal = None if result.overflow is None else _why(graph, result.overflow)
        self._proofs.append(_Proof(bound_s=bound_s, illegal=illegal))

    def _offer(self, scheme: Scheme) -> None:
        """Keep the best scheme of a name: what fits before what does not."""
        known = self._best.get(scheme.name)
        if known is None or _rank(scheme) < _rank(known):
            self._best[scheme.name] = scheme
            self._observer(scheme)

    def _result(self) -> SchemeResult:
        schemes = tuple(sorted(self._best.values(), key=_rank))
        whole = self._method is Method.EXACT and len(self._proofs) == len(self._cases)
        bounds = [proof.bound_s for proof in self._proofs if proof.bound_s is not None]
        illegal = [proof.illegal for proof in self._proofs if proof.illegal is not None]
        fastest_s = min((scheme.costs.iteration_s for scheme in schemes if scheme.fits), default=math.inf)
        result = SchemeResult(
            status=Status.NO_PLAN if math.isinf(fastest_s) else Status.FEASIBLE,
            seconds=self.seconds,
            schemes=schemes,
            bound_s=min(*bounds, fastest_s) if whole and bounds else None,
            overflow=illegal[0] if whole and not bounds else None,
            fault=self.fault,
        )
        status = self._status(result)
        ended = status in (Status.OPTIMAL, Status.INFEASIBLE)
        return replace(result, status=status, stopped_by=None if ended else self.stop_cause)

    def _status(self, result: SchemeResult) -> Status:
        if result.best is None and result.overflow is not None:
            return Status.INFEASIBLE
        if result.gap is not None and result.gap <= self.options.gap + RECOMPUTED:
            return Status.OPTIMAL
        return Status.INTERRUPTED if self.cancelled else result.status


def search_sizes(
    cases_of: Callable[[int], Sequence[ShardingCase]],
    sizes: Iterable[int],
    method: Method,
    options: SolveOptions,
    *,
    tied: bool = True,
    observer: SchemeObserver = lambda _: None,
    **limits: Unpack[RunLimits],
) -> SchemeResult:
    """Search the cases of one micro-batch size after another until something fits, or the budget is spent."""
    spent_s, seconds = limits.get("spent_s", 0.0), 0.0
    for size in sizes:
        own: RunLimits = {**limits, "spent_s": spent_s + seconds}
        result = SchemeSearch(cases_of(size), method, options, tied=tied, observer=observer, **own).run()
        seconds += result.seconds
        if result.best is not None or result.stopped_by is not None or result.fault is not None:
            break
    return replace(result, seconds=seconds)


def _rank(scheme: Scheme) -> tuple[bool, float]:
    return not scheme.fits, scheme.costs.iteration_s if scheme.fits else scheme.costs.memory_bytes


def _why(graph: ShardingGraph, overflow: str) -> str:
    """What no sharding can do without, in bytes; where each operator alone would do, what the search says."""
    limit_bytes = graph.case.device.memory_bytes
    mesh = "x".join(map(str, graph.case.mesh.sizes))
    if graph.least_bytes > limit_bytes:
        least, limit = format_bytes(graph.least_bytes), format_bytes(limit_bytes)
        return f"mesh {mesh}: every sharding needs at least {least} per device, which has {limit}"
    return f"mesh {mesh}: {overflow} bytes"
