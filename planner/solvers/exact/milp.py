"""The mixed-integer program over the stage network, on the arcs that no bound rules out.

From the plan of `greedy`, always the variant (schedule, micro-batch size, share of the cluster) with
the lowest bound next:

1. build the stage network without positions, and sieve it: arcs that no plan below the limit uses
   are left out, by labels with prices on hosts;
2. raise the bound by labels that count hosts, divide the plans by their number of stages, give the
   network positions where few enough arcs are left, and branch on stages;
3. once a few thousand arcs are left, find multipliers on the bound rows and fix arcs by them;
4. solve the MIP on the rest with HiGHS: either no plan's rows stay below the cutoff, or the best
   such plan is simulated and excluded;
5. go on until the bound of every variant meets the best simulated time within the gap asked for.

The limit is the best simulated time, less the gap, so each improvement makes all that follows easier.

The mathematics: rows in :mod:`planner.simulator.bounds`, the sieve in :mod:`planner.network.pruning`,
labels in :mod:`planner.solvers.exact.decision`, multipliers in :mod:`planner.network.lagrangian`, the MIP in
:mod:`planner.network.program`.
"""

import math

from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.exact.dp import promising_first
from stagecut.planner.solvers.exact.variant_proof import VariantProof
from stagecut.planner.solvers.heuristic import greedy
from stagecut.planner.solvers.interleaved.proof import InterleavedProof
from stagecut.planner.solvers.search.options import RowChoice
from stagecut.planner.solvers.search.search import Search

Proof = VariantProof | InterleavedProof


def solve(problem: Problem, search: Search) -> Result:
    """Best plan and a proven bound over the whole search space.

    In the shared rows the bound is their optimum and nothing more: no plan is excluded.
    """
    with search.step("greedy"):
        greedy.solve(problem, search)
    proofs = [_proof(search, variant) for variant in promising_first(problem, search)]
    with search.surviving():
        _advance(search, proofs)
    search.raise_bound(min(proof.bound_s for proof in proofs))
    exhausted = search.bound_s == math.inf
    return search.result("milp", proves=True, exhausted=exhausted, row_bound_s=_row_bound(proofs))


def _advance(search: Search, proofs: list[Proof]) -> None:
    """Take the next step of the weakest proof, until the bound is good enough or the budget is spent."""
    for proof in proofs:
        if not search.out_of_budget:
            proof.advance()
    while not search.out_of_budget:
        weakest = min(proofs, key=lambda proof: proof.bound_s)
        search.raise_bound(weakest.bound_s)
        if weakest.stalled or _enough(search, weakest):
            break
        weakest.advance()


def _proof(search: Search, variant: Variant) -> Proof:
    return (InterleavedProof if variant.schedule is Schedule.INTERLEAVED else VariantProof)(search, variant)


def _enough(search: Search, weakest: Proof) -> bool:
    """Whether the gap asked for is reached; in the shared rows, whether their optimum is known."""
    if weakest.bound_s == math.inf:
        return True
    if search.options.rows is RowChoice.SHARED:
        return weakest.row_bound_s is not None
    return search.closed


def _row_bound(proofs: list[Proof]) -> float | None:
    """Least value of the rows over all variants, where it is known to be the least."""
    least = min((proof.row_bound_s for proof in proofs if proof.row_bound_s is not None), default=None)
    if least is None or any(proof.row_floor_s < least for proof in proofs):
        return None
    return least
