"""Why nothing fits, in numbers, and the smallest change that would help."""

import math
from collections.abc import Iterator
from dataclasses import replace

from planner.core.job import Recompute
from planner.core.problem import Problem
from planner.core.result import Shortage
from planner.core.schedule import Schedule
from planner.cost.cost_model import CostModel
from planner.solvers.feasibility import fitting_plan

PRECISION = 0.01
"""Memory factors are found to this relative precision."""
LARGEST_FACTOR = 2.0**20


def find_shortages(problem: Problem) -> tuple[Shortage, ...]:
    """The stages of the plan that comes nearest to fitting, as far as they lack memory.

    Nearest: the plan that fits once the memory of every device is multiplied by the smallest
    factor, found by bisection.
    """
    factor = _least_memory_factor(problem)
    if factor is None:
        return ()
    plan = fitting_plan(with_memory(problem, factor))
    assert plan is not None
    costs = CostModel(problem)
    numbers = costs.plan(plan)
    remedy = _remedy(problem, factor)
    short = [
        Shortage(
            device_type=costs.stages.device_type(costs.hosting(stage).placement).name,
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
    kinds = tuple(replace(kind, memory_bytes=kind.memory_bytes * factor) for kind in problem.cluster.device_types)
    return replace(problem, cluster=replace(problem.cluster, device_types=kinds))


def _least_memory_factor(problem: Problem) -> float | None:
    high = 2.0
    while fitting_plan(with_memory(problem, high)) is None:
        high *= 2
        if high > LARGEST_FACTOR:
            return None
    low = high / 2
    while high / low > 1 + PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fitting_plan(with_memory(problem, middle)) else (middle, high)
    return high


def _remedy(problem: Problem, factor: float) -> str:
    """The first change that makes a plan fit, from those that cost nothing to new hardware."""
    found = next((text for text, changed in _changes(problem) if fitting_plan(changed) is not None), None)
    memory = f"{factor - 1:.0%} more memory on every device"
    return f"{found}; or {memory}" if found else memory


def _changes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    job = problem.job
    if job.recompute is Recompute.NEVER:
        yield "allow recomputation (--recompute auto)", replace(problem, job=replace(job, recompute=Recompute.AUTO))
    if Schedule.ONE_F_ONE_B not in job.schedules:
        yield "schedule 1f1b", replace(problem, job=replace(job, schedules=(Schedule.ONE_F_ONE_B,)))
    for size in sorted((size for size in range(1, min(job.micro_batches))), reverse=True):
        if job.global_batch % size == 0:
            yield f"micro-batches of {size}", replace(problem, job=replace(job, micro_batches=(size,)))
    for extra in (1, 2, 4, 8):
        for index, server in enumerate(problem.cluster.servers):
            grown = replace(server, count=server.count + extra)
            servers = (*problem.cluster.servers[:index], grown, *problem.cluster.servers[index + 1 :])
            hosts = "one more server" if extra == 1 else f"{extra} more servers"
            yield f"{hosts} {server.name!r}", replace(problem, cluster=replace(problem.cluster, servers=servers))
