"""Whether any plan fits, whatever its time."""

import math
from dataclasses import replace

from planner.core.plan import Plan
from planner.core.problem import Problem, Variant
from planner.cost.cost_model import CostModel
from planner.network.decode import decode_path
from planner.network.rows import build_rows
from planner.network.stage_network import build_network
from planner.solvers.highs import solve_integer
from planner.solvers.stage_program import path_of, stage_program

TIME_LIMIT_S = 20.0


def fitting_plan(problem: Problem) -> Plan | None:
    """Some plan that fits in memory and on the hosts there are, None if none does in any variant."""
    costs = CostModel(problem)
    plans = (_fitting_plan(costs, variant) for variant in problem.variants)
    return next((plan for plan in plans if plan is not None), None)


def _fitting_plan(costs: CostModel, variant: Variant) -> Plan | None:
    network = build_network(costs, variant)
    if len(network.arcs) == 0:
        return None
    rows = replace(build_rows(network, shared_only=True), families=())
    program, _ = stage_program(rows, integer=True, missing_penalty=None)
    answer = solve_integer(
        program,
        time_limit_s=TIME_LIMIT_S,
        stop=lambda: False,
        on_solution=lambda columns: None,
        threads=1,
        seed=0,
        gap=math.inf,
    )
    return None if answer.columns is None else decode_path(network, path_of(network, answer.columns))
