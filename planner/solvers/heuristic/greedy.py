"""A good plan in seconds: the right device groups first, then layers moved about.

1. Every variant (schedule, micro-batch size, share of the cluster), the one that could be fastest
   first, is sketched over a few orders of the server classes: :mod:`planner.solvers.heuristic.sketches`. A
   variant that could not beat the best plan so far is passed over.
2. The most promising variants are sketched again, finer and over more orders, and the best of
   these plans are simulated.
3. The fastest of them are improved by moves of layers that the simulator judges, the very fastest
   also by changes of its groups: :mod:`.local_search`, :mod:`.regroup`.
4. Interleaved variants are looked at apart, last: :mod:`.interleaved_greedy`.

Where layers and devices are many all this begins with an even split, for the first sketches take seconds.

Nothing is random, and all limits are counts.
"""

from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.arrangement import arrangement_of
from stagecut.planner.solvers.heuristic.interleaved_greedy import offer_interleaved
from stagecut.planner.solvers.heuristic.local_search import move_layers, seated_layout, simulated
from stagecut.planner.solvers.heuristic.regroup import regroup
from stagecut.planner.solvers.heuristic.sketches import Sketch, Sketcher
from stagecut.planner.solvers.heuristic.stage_tables import StageTables
from stagecut.planner.solvers.reference.even import offer_first
from stagecut.planner.solvers.search.search import Search

LARGE = 20_000
"""Layers times devices from which an even split comes first."""
COARSE_SKETCHES, FINE_SKETCHES = 4, 12
"""Sequences of groups in a sketch."""
WORTH_REFINING = 1.12
"""No variant is sketched again whose estimate is above this times the smallest."""
NUM_REFINED, REFINED_STEPS = 24, 40_000
"""Nor are more than so many, nor any more once so many steps have been taken."""
NUM_SIMULATED, WORTH_SIMULATING = 3, 1.005
"""Refined plans of each variant that are simulated, none with an estimate above this times the best plan."""
NUM_IMPROVED, WORTH_IMPROVING = 4, 1.03
"""So many plans are improved, none slower than this times the best."""

Simulated = tuple[float, Sketch]
"""With its simulated iteration time."""


def solve(problem: Problem, search: Search) -> Result:
    """The best plan met; proves nothing."""
    if problem.model.num_layers * problem.cluster.num_devices >= LARGE:
        offer_first(search)
    sketcher = Sketcher(StageTables(search.costs))
    sketches = _coarse(problem, search, sketcher)
    plans = sorted(_fine(search, sketcher, sketches), key=lambda plan: plan[0])
    for start_s, sketch in plans[:NUM_IMPROVED]:
        if start_s <= WORTH_IMPROVING * plans[0][0]:
            move_layers(search, sketch.seated, sketch.stops, start_s)
    best = search.best_plan
    if best is not None and best.schedule is not Schedule.INTERLEAVED:
        layout = arrangement_of(search.costs.of(best.share), best)
        regroup(search, sketcher.tables, *seated_layout(sketcher.tables, best.variant, layout), search.best_s)
    offer_interleaved(search)
    return search.result("greedy", proves=False)


def _coarse(problem: Problem, search: Search, sketcher: Sketcher) -> list[Sketch]:
    """The best sketch of every variant that might beat the best plan so far, the smallest estimate first."""
    found: list[Sketch] = []
    variants = [variant for variant in problem.variants if variant.schedule is not Schedule.INTERLEAVED]
    for variant in sorted(variants, key=sketcher.floor_s):
        if search.out_of_budget or sketcher.floor_s(variant) >= search.best_s:
            break
        for sketch in sketcher.coarse(variant, count=COARSE_SKETCHES)[:1]:
            found.append(sketch)
            if sketch.seconds < search.best_s:
                simulated(search, sketch.seated, sketch.stops[None])
    return sorted(found, key=lambda sketch: sketch.seconds)


def _fine(search: Search, sketcher: Sketcher, sketches: list[Sketch]) -> list[Simulated]:
    """The best refined plans of the most promising variants."""
    plans, steps_left = list[Simulated](), REFINED_STEPS
    for coarse in sketches[:NUM_REFINED]:
        too_slow = coarse.seconds > WORTH_REFINING * sketches[0].seconds
        if search.out_of_budget or too_slow or steps_left <= 0:
            break
        variant = coarse.seated.variant
        steps_left -= sketcher.num_fine_steps(variant)
        for sketch in sketcher.fine(variant, coarse.limit_s, count=FINE_SKETCHES)[:NUM_SIMULATED]:
            if sketch.seconds < search.best_s * WORTH_SIMULATING:
                (seconds,) = simulated(search, sketch.seated, sketch.stops[None])
                plans.append((float(seconds), sketch))
    return plans
