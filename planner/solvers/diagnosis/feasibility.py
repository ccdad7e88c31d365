"""Whether any plan fits in memory, whatever its time."""

import math
from contextlib import suppress
from dataclasses import replace
from itertools import compress

import numpy as np

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.schedule import EASIEST_FIRST, Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.decode import decode_path
from stagecut.planner.network.labels.counted_paths import TooManyLabelsError
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network
from stagecut.planner.solvers.exact.decision import Decision
from stagecut.planner.solvers.exact.fluid_bound import fluid_bounds
from stagecut.planner.solvers.exact.mixed_integer_program import path_of, stage_program
from stagecut.planner.solvers.interleaved.proof import InterleavedProof
from stagecut.planner.solvers.search.cases import cases_of
from stagecut.planner.solvers.search.highs import SolveOutcome, solve_integer
from stagecut.planner.solvers.search.options import SolveOptions, StopCheck
from stagecut.planner.solvers.search.search import Search


class UndecidedError(Exception):
    """The search was stopped before it had an answer."""


def fitting_plan(problem: Problem, *, stop: StopCheck = lambda: False) -> Plan | None:
    """Some plan that fits in memory and on the available hosts; None if there is none in any variant.

    Raises
    ------
    UndecidedError
        If `stop` ends the search first.
    """
    if (cases := cases_of(problem)) is None:
        return _of_variants(problem, stop)
    plans = ((case, _of_variants(case.problem, stop)) for case in cases)
    return next((case.unmerged(plan) for case, plan in plans if plan is not None), None)


def _of_variants(problem: Problem, stop: StopCheck) -> Plan | None:
    costs, asked = CostModel(problem), _worth_asking(problem)
    # Infinite where the layers, however divided, take more memory than there is.
    for variant in compress(asked, np.isfinite(fluid_bounds(costs, asked))):
        if stop():
            raise UndecidedError
        interleaved = variant.schedule is Schedule.INTERLEAVED
        plan = _fitting_interleaved_plan(problem, variant, stop) if interleaved else _fitting_plan(costs, variant, stop)
        if plan is not None:
            return plan
    return None


def _worth_asking(problem: Problem) -> list[Variant]:
    """The variants that can decide the question, small micro-batches first.

    Where every stage has devices of its own, what fits under a schedule also fits under one with smaller
    warm-up depths, so the easiest of these schedules is enough. No other choice is always easiest: more
    pipelines or replicas may shard the optimizer state, and fewer micro-batches mean fewer in flight.
    """
    schedules = problem.job.schedules
    easiest = [schedule for schedule in EASIEST_FIRST if schedule in schedules][:1]
    asked = [variant for variant in problem.variants if variant.schedule in (*easiest, Schedule.INTERLEAVED)]
    return sorted(asked, key=lambda variant: (variant.schedule is Schedule.INTERLEAVED, variant.micro_batch))


def _fitting_interleaved_plan(problem: Problem, variant: Variant, stop: StopCheck) -> Plan | None:
    """The first plan met by the search for a fast one."""
    search = Search(problem, SolveOptions(time_limit_s=None))
    proof = InterleavedProof(search, variant)
    while search.best_plan is None and proof.bound_s < math.inf:
        if stop() or proof.stalled:
            raise UndecidedError
        proof.advance()
    return search.best_plan


def _fitting_plan(costs: CostModel, variant: Variant, stop: StopCheck) -> Plan | None:
    network = build_network(costs, variant)
    if len(network.arcs) == 0:
        return None
    rows = build_rows(network, shared_only=True)
    with suppress(TooManyLabelsError):
        found = Decision(rows).path_below(math.inf)
        return None if found is None else decode_path(network, found.path)
    program, _ = stage_program(replace(rows, families=()), integer=True, missing_penalty=None)
    answer = solve_integer(
        program, time_limit_s=math.inf, stop=stop, on_solution=lambda columns: None, threads=1, seed=0, gap=math.inf
    )
    if answer.columns is None and answer.outcome is SolveOutcome.STOPPED:
        raise UndecidedError
    return None if answer.columns is None else decode_path(network, path_of(network, answer.columns))
