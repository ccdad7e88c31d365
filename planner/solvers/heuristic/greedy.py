"""A good plan in seconds: device groups first, then layers.

1. Every variant (schedule, micro-batch size, share of the cluster), the potentially fastest first, gets candidates over
   a few orders of the server classes: :mod:`stagecut.planner.solvers.heuristic.candidates`. Variants that cannot beat
   the best plan so far are skipped. Large problems begin with an even split, as their first candidates take seconds.
2. The most promising variants get finer candidates over more orders, and the best of these are simulated.
3. The fastest of them are improved by moves of layers that the simulator judges, the very fastest also by changes of
   its device groups: :mod:`stagecut.planner.solvers.heuristic.local_search`. Random changes may follow later:
   :mod:`stagecut.planner.solvers.heuristic.large_steps`.
4. Interleaved variants come last: :mod:`stagecut.planner.solvers.heuristic.interleaved_greedy`.

Nothing but what may follow is random, and all limits are counts.
"""

from collections.abc import Mapping

from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.heuristic.candidates import Candidate, CandidateSearch, best_known
from stagecut.planner.solvers.heuristic.interleaved_greedy import offer_interleaved
from stagecut.planner.solvers.heuristic.interleaved_polish import InterleavedPolish
from stagecut.planner.solvers.heuristic.large_steps import LargeSteps
from stagecut.planner.solvers.heuristic.local_search import change_groups, move_layers, simulated_times
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.reference.even import offer_first
from stagecut.planner.solvers.search.search import Search

LARGE = 20_000
"""Layers times devices from which an even split comes first; without it, or with it always, the same 5 plans."""
NUM_COARSE, NUM_FINE = 4, 12
"""Candidates of a variant; with 1 coarse one, two of 12 plans are 8 and 14 % slower."""
NUM_REFINED, REFINED_ARCS = 24, 40_000
"""At most 24 variants get fine candidates, and none once 40,000 arcs have been searched: these bound the time."""
NUM_SIMULATED = 3
"""Fine candidates of each variant that are simulated; with all of them, one of 12 plans is 4 % faster."""
NUM_IMPROVED = 4
"""Simulated candidates that are improved; with all of them, one of 12 plans is 6 % faster."""


Improvement = LargeSteps | InterleavedPolish


def solve(problem: Problem, search: Search) -> Result:
    """The best plan found; proves nothing."""
    first_plans(problem, search)
    return search.result("greedy", proves=False)


def first_plans(problem: Problem, search: Search, floors_s: Mapping[Variant, float] | None = None) -> list[Improvement]:
    """Offer the best plan found; return what may still be tried.

    Where `floors_s` is stated, no plan of a variant takes less than its seconds there; variants that are not in it are
    judged by floors of our own.
    """
    if search.best_plan is None and problem.model.num_layers * problem.cluster.num_devices >= LARGE:
        offer_first(search)
    candidates = CandidateSearch(StageTables(search.costs))
    coarse = _coarse(problem, search, candidates, floors_s or {})
    fastest = sorted(_fine(search, candidates, coarse), key=lambda pair: pair[0])
    for seconds, candidate in fastest[:NUM_IMPROVED]:
        move_layers(search, candidate.sequence, candidate.stops, seconds)
    best = best_known(search, candidates.tables)
    if best is not None:
        moved = move_layers(search, best.sequence, best.stops, best.seconds)
        change_groups(search, candidates.tables, best.sequence, *moved)
    interleaved, steps = offer_interleaved(search), LargeSteps(candidates.tables)
    return [steps] if interleaved is None else [steps, interleaved]


def _coarse(
    problem: Problem, search: Search, candidates: CandidateSearch, stated_s: Mapping[Variant, float]
) -> list[Candidate]:
    """The best coarse candidate of every variant that might beat the best plan, the smallest estimate first."""
    found: list[Candidate] = []
    variants = [variant for variant in problem.variants if variant.schedule is not Schedule.INTERLEAVED]
    floors_s = {variant: stated_s.get(variant) or candidates.floor_s(variant) for variant in variants}
    for variant in sorted(variants, key=floors_s.__getitem__):
        if search.out_of_budget or floors_s[variant] >= search.best_s:
            break
        for candidate in candidates.coarse(variant, count=NUM_COARSE):
            found.append(candidate)
            if candidate.seconds < search.best_s:
                simulated_times(search, candidate.sequence, candidate.stops[None])
    return sorted(found, key=lambda candidate: candidate.seconds)


def _fine(search: Search, candidates: CandidateSearch, coarse: list[Candidate]) -> list[tuple[float, Candidate]]:
    """The best fine candidates of the most promising variants, with their simulated times."""
    simulated, arcs_left = list[tuple[float, Candidate]](), REFINED_ARCS
    for start in coarse[:NUM_REFINED]:
        if search.out_of_budget or arcs_left <= 0:
            break
        arcs_left -= candidates.num_fine_arcs(start.sequence.variant)
        for candidate in candidates.fine(start, count=NUM_FINE)[:NUM_SIMULATED]:
            if candidate.seconds < search.best_s:
                (seconds,) = simulated_times(search, candidate.sequence, candidate.stops[None])
                simulated.append((float(seconds), candidate))
    return simulated
