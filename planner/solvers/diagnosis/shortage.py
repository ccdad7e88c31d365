"""Which stages lack how much memory where no plan fits, and the smallest change that would help."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.job import Job, Recompute
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Shortage
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.solvers.diagnosis.extra_units import with_more_memory
from stagecut.planner.solvers.diagnosis.feasibility import UndecidedError, fitting_plan
from stagecut.planner.solvers.search.options import StopCheck

PRECISION = 0.01
"""Relative precision of the smallest memory factor at which a plan fits."""
LARGEST_FACTOR = 2.0**20
"""If no plan fits with this many times the memory, memory is not the reason."""
DIAGNOSIS_S = 15.0
"""How long a search for shortages may take after the search for a plan."""


def find_shortages(problem: Problem, *, stop: StopCheck = lambda: False) -> tuple[Shortage, ...]:
    """The stages short of memory in the plan that comes nearest to fitting, the largest shortage first.

    That is the plan that fits once the memory of every device is multiplied by the smallest possible
    factor, found by bisection. If `stop` ends the search first, the nearest plan by then; empty without one.
    """
    nearest = _nearest_plan(problem, stop)
    if nearest is None:
        return ()
    factor, plan = nearest
    costs = CostModel(problem).of(plan.share)
    numbers = costs.plan(plan)
    remedy = _remedy(problem, factor, stop)
    short = [
        Shortage(
            device_type=costs.stages.device_type(costs.device_group(stage).placement).name,
            layers=(stage.start, stage.stop),
            needed_bytes=float(needed),
            limit_bytes=float(limit),
            remedy=remedy,
        )
        for stage, needed, limit in zip(plan.stages, numbers.memory_bytes, numbers.limit_bytes, strict=True)
        if needed > limit
    ]
    return tuple(sorted(short, key=lambda item: -item.short_bytes))


def with_memory(problem: Problem, factor: float) -> Problem:
    """The problem with the memory of every device multiplied."""
    return replace(problem, cluster=with_more_memory(problem.cluster, factor))


def _nearest_plan(problem: Problem, stop: StopCheck) -> tuple[float, Plan] | None:
    """The least memory factor known at which a plan fits, and that plan; None if no factor helps."""
    low, nearest = 1.0, None
    with suppress(UndecidedError):
        while nearest is None or nearest[0] / low > 1 + PRECISION:
            middle = 2 * low if nearest is None else math.sqrt(low * nearest[0])
            if middle > LARGEST_FACTOR:
                break
            plan = fitting_plan(with_memory(problem, middle), stop=stop)
            if plan is None:
                low = middle
            else:
                nearest = middle, plan
    return nearest


def _remedy(problem: Problem, factor: float, stop: StopCheck) -> str:
    """The first change that makes a plan fit; changes that cost nothing come first."""
    memory = f"{factor:.3g} times the memory" if factor > 2 else f"{factor - 1:.0%} more memory"
    found = None
    with suppress(UndecidedError):
        found = next((text for text, changed in _changes(problem) if fitting_plan(changed, stop=stop)), None)
    return f"{found}; or {memory} on every device" if found else f"{memory} on every device"


def _changes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Slightly changed problems, each with the change in words; contradictory ones are left out."""
    for text, changes in _other_jobs(problem):
        with suppress(BadInputError):  # the framework of the job refuses the change
            yield from _sensible(text, problem, job=replace(problem.job, **changes))
    for extra in (1, 2, 4, 8):
        for index, server in enumerate(problem.cluster.servers):
            grown = replace(server, count=server.count + extra)
            servers = (*problem.cluster.servers[:index], grown, *problem.cluster.servers[index + 1 :])
            hosts = "one more server" if extra == 1 else f"{extra} more servers"
            yield from _sensible(f"{hosts} {server.name!r}", problem, cluster=replace(problem.cluster, servers=servers))


def _other_jobs(problem: Problem) -> Iterator[tuple[str, dict[str, Any]]]:
    job = problem.job
    if job.recompute is Recompute.NEVER:
        yield "allow recomputation (--recompute auto)", {"recompute": Recompute.AUTO}
    if not job.zero1:
        yield "shard the optimizer state (--zero1)", {"zero1": True}
    if job.tensor_parallel is not None:
        yield "allow any tensor parallelism (--tensor-parallel auto)", {"tensor_parallel": None}
    if job.sharding != tuple(Parallelism) and job.can_shard and not problem.model.skip_edges:
        yield "divide operators in any way (--sharding auto)", {"sharding": tuple(Parallelism)}
    if job.pipelines is not None and job.pipelines != (1,):
        yield "a single pipeline (--pipelines 1)", {"pipelines": (1,)}
    if Schedule.ONE_F_ONE_B not in job.schedules:
        yield "schedule 1f1b", {"schedules": (Schedule.ONE_F_ONE_B,)}
    for size in range(min(job.micro_batches) - 1, 0, -1):
        if job.global_batch % size == 0:
            yield f"micro-batches of {size}", {"micro_batches": (size,)}


def _sensible(
    text: str, problem: Problem, *, job: Job | None = None, cluster: Cluster | None = None
) -> Iterator[tuple[str, Problem]]:
    """The changed problem, unless its parts contradict each other."""
    with suppress(BadInputError):
        yield text, replace(problem, job=job or problem.job, cluster=cluster or problem.cluster)
