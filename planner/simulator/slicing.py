"""How many warm-up micro-batches to halve: the rule behind the job's choice `auto`.

The count grows from zero as long as one more makes the iteration shorter. A count that pays only together
with the next one is not found; with equal stages and no transfers every count up to the best one pays.
"""

from collections.abc import Iterator
from dataclasses import replace

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.numerics.tolerances import WORTHWHILE_SLICING
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times


def paying_count(costs: PlanCosts, unsliced_s: float) -> tuple[int, float]:
    """Smallest sliced warm-up count from which one more does not shorten the iteration.

    Returns the count and the seconds of the iteration with it; without halved micro-batches it takes `unsliced_s`.
    """
    found, best_s = 0, unsliced_s
    for num_sliced in range(1, int(costs.warmup_depth.max()) + 1):
        seconds = float(iteration_times([costs.sliced(num_sliced)])[0])
        if seconds >= best_s * (1 - WORTHWHILE_SLICING):
            break
        found, best_s = num_sliced, seconds
    return found, best_s


def as_stated(problem: Problem, plan: Plan) -> Plan:
    """The plan with the sliced warm-up count that the job states, zero under `auto`."""
    count = problem.job.first_num_sliced(plan.schedule, plan.micro_batch, plan.num_microbatches)
    return plan if plan.is_unequal or plan.num_sliced == count else replace(plan, num_sliced=count)


def searched_bound(costs: CostModel, plan: Plan, families: tuple[str, ...] | None = None) -> float:
    """The largest row of a plan that holds for every sliced warm-up count that its job leaves it."""
    problem = costs.problem
    return lower_bound(costs.plan(as_stated(problem, plan)), families, any_slicing=problem.job.slice == AUTO)


def slicing_faults(costs: CostModel, plan: Plan) -> Iterator[str]:
    """A fault where the job leaves the sliced warm-up count to the planner and the plan's is not the one that pays."""
    if costs.problem.job.slice != AUTO or plan.is_unequal:
        return
    numbers = costs.plan(as_stated(costs.problem, plan))
    count, _ = paying_count(numbers, float(iteration_times([numbers])[0]))
    if plan.num_sliced != count:
        yield f"{plan.num_sliced} halved micro-batches, where {count} pay"
