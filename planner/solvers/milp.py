"""The mixed-integer program over the stage network, solved by HiGHS on the arcs not yet ruled out.

From the plan of `greedy`, always the variant (schedule and micro-batch size) with the lowest bound next:

1. build the stage network, without the stages that alone exceed the best plan known;
2. bound the variant by labels, and branch on stages while too many arcs are left for the MIP;
3. find multipliers on the bound rows: another bound on the variant, and one for every arc;
4. keep the arcs whose bound is below a cutoff, and solve the MIP on them: either no plan's rows
   stay below the cutoff, which raises the variant's bound to it, or the best such plan is found;
5. simulate that plan, exclude it, and go on until the bound of every variant meets the best
   simulated time within the gap asked for.

The mathematics: the rows in :mod:`planner.simulator.bounds`, the MIP in :mod:`planner.network.program`,
the labels in :mod:`planner.solvers.decision`, the multipliers in :mod:`planner.network.lagrangian`.
"""

import math

from planner.core.problem import Problem
from planner.core.result import Result
from planner.solvers import greedy
from planner.solvers.dp import promising_first
from planner.solvers.options import RowChoice
from planner.solvers.search import Search
from planner.solvers.shortage import DIAGNOSIS_S, find_shortages
from planner.solvers.variant_proof import VariantProof


def solve(problem: Problem, search: Search) -> Result:
    """Best plan and a proven bound over the whole search space.

    In the shared rows the bound is their optimum and nothing more: no plan is excluded.
    """
    greedy.solve(problem, search)
    proofs = [VariantProof(search, variant) for variant in promising_first(problem, search)]
    for proof in (*proofs, proofs[0]):
        if not search.out_of_budget:
            proof.advance()
    while not search.out_of_budget:
        weakest = min(proofs, key=lambda proof: proof.bound_s)
        search.raise_bound(weakest.bound_s)
        if weakest.stalled or _enough(search, weakest):
            break
        weakest.advance()
    search.raise_bound(min(proof.bound_s for proof in proofs))
    exhausted = search.bound_s == math.inf
    return search.result(
        "milp",
        proves=True,
        exhausted=exhausted,
        row_bound_s=_row_bound(proofs),
        shortages=find_shortages(problem, stop=search.stop_after(DIAGNOSIS_S))
        if exhausted and search.best_plan is None
        else (),
    )


def _enough(search: Search, weakest: VariantProof) -> bool:
    """Whether the gap asked for is reached; in the shared rows, whether their optimum is known."""
    if weakest.bound_s == math.inf:
        return True
    if search.options.rows is RowChoice.SHARED:
        return weakest.row_bound_s is not None
    return search.closed


def _row_bound(proofs: list[VariantProof]) -> float | None:
    """Least value of the rows over all variants, where it is known to be the least."""
    least = min((proof.row_bound_s for proof in proofs if proof.row_bound_s is not None), default=None)
    if least is None or any(proof.row_floor_s < least for proof in proofs):
        return None
    return least
