"""UMPIPE as a planner: TiDGAP's sizes for the stages of the best plan with equal micro-batches.

How the paper cuts and places the stages is not known to us; here they are those of `greedy`, under the schedules that
the job allows. The search has no notion of all-reduces and optimizer steps, and chooses forwards and backwards apart;
sizes that the executor could not play are replaced by the nearest that it can.
"""

from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import OwnObjective, Result
from stagecut.planner.network.sized.flush_problem import flush_problem
from stagecut.planner.solvers.heuristic import greedy
from stagecut.planner.solvers.papers.umpipe.search import search as search_sizes
from stagecut.planner.solvers.search.search import Search

NAME = "umpipe"
METHOD = "matrix-genetic"


def solve(problem: Problem, search: Search) -> Result:
    """The best plan of `greedy` with equal micro-batches, or its stages with TiDGAP's sizes if the job allows them.

    It proves nothing.
    """
    greedy.solve(problem, search)
    plan = search.best_plan
    for variant in problem.unequal_variants:
        if plan is None or plan.share != variant.share or plan.chunks > 1 or search.out_of_budget:
            continue
        sizes = problem.job.sublot_sizes(variant.micro_batch)
        flush = flush_problem(search.costs.of(variant.share), variant, plan, sizes, with_tails=False)
        if flush is not None:
            with search.step("genetic search"):
                found = search_sizes(flush.sublots, METHOD, seed=search.options.seed)
            objective = OwnObjective(name="forwards and backwards, s", value=found.makespan_s)
            search.offer([flush.sized(found.sizes)], objective)
    return search.result(NAME, proves=False)
