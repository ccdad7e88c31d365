"""Whether any plan fits, whatever its time."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from planner.core.plan import Plan
from planner.core.problem import Problem, Variant
from planner.core.schedule import Schedule
from planner.cost.cost_model import CostModel
from planner.network.counted_paths import CountedPaths, Criteria
from planner.network.decode import decode_path
from planner.network.rows import Rows, build_rows
from planner.network.stage_network import build_network
from planner.solvers.highs import Outcome, StopCheck, solve_integer
from planner.solvers.stage_program import path_of, stage_program

EASIEST_FIRST = (Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B, Schedule.GPIPE)
"""By warm-up depth, and so by memory."""


class UndecidedError(Exception):
    """The question was stopped before it was answered."""


def fitting_plan(problem: Problem, *, stop: StopCheck = lambda: False) -> Plan | None:
    """Some plan that fits in memory and on the hosts there are, None if none does in any variant.

    Raises
    ------
    UndecidedError
        If `stop` says so.
    """
    costs = CostModel(problem)
    for variant in _worth_asking(problem):
        if stop():
            raise UndecidedError
        plan = _fitting_plan(costs, variant, stop)
        if plan is not None:
            return plan
    return None


def _worth_asking(problem: Problem) -> Iterable[Variant]:
    """Variants, those of least memory first; a single sample on a single device is easiest of all."""
    job = problem.job
    ordered = sorted(problem.variants, key=lambda item: (EASIEST_FIRST.index(item.schedule), item.micro_batch))
    alone = job.replicas is None or 1 in job.replicas
    return ordered[:1] if alone and ordered[0].micro_batch == 1 else ordered


def _fitting_plan(costs: CostModel, variant: Variant, stop: StopCheck) -> Plan | None:
    network = build_network(costs, variant)
    if len(network.arcs) == 0:
        return None
    rows = replace(build_rows(network, shared_only=True), families=())
    if CountedPaths.fit(network):
        path = CountedPaths(network).cheapest(_no_limits(rows), np.ones(len(network.arcs), dtype=bool))
        return None if path is None else decode_path(network, path)
    program, _ = stage_program(rows, integer=True, missing_penalty=None)
    answer = solve_integer(
        program, time_limit_s=math.inf, stop=stop, on_solution=lambda columns: None, threads=1, seed=0, gap=math.inf
    )
    if answer.columns is None and answer.outcome is Outcome.STOPPED:
        raise UndecidedError
    return None if answer.columns is None else decode_path(network, path_of(network, answer.columns))


def _no_limits(rows: Rows) -> Criteria:
    unlimited = np.full(len(rows.network.arcs), np.inf)
    return Criteria(
        round_trip=rows.round_trip,
        forward=rows.forward,
        latest_round_trip=unlimited,
        latest_forward=unlimited,
        latest_end=unlimited,
        latest_drain=unlimited,
        loop=-unlimited,
        latest_turn=unlimited,
        latest_late=unlimited,
    )
