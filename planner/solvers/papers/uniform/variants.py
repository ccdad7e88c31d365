"""The variants that a planner for equal servers plans for, one by one, and what becomes of its plans."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.result import OwnObjective
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster, uniform_cluster
from stagecut.planner.solvers.search.refusals import require_schedules
from stagecut.planner.solvers.search.search import Search

UniformVariant = tuple[Variant, UniformCluster]
Planner = Callable[[Search, Variant, UniformCluster], tuple[Plan | None, float] | None]
"""Plans for one variant: a plan, None if it does not fit, and the value of the planner's own objective."""


def uniform_variants(
    search: Search, solver: str, *, schedules: Sequence[Schedule] = (Schedule.ONE_F_ONE_B,)
) -> list[UniformVariant]:
    """Every variant with one of these schedules whose pipelines each have equal servers.

    Those whose pipelines have the fewest devices come first, as they are the quickest to plan.

    Raises
    ------
    UnsupportedError
        If the job allows none of the schedules, or if no share of the cluster consists of equal servers.
    """
    require_schedules(search.problem, solver, schedules)
    found, unequal = list[UniformVariant](), list[UnsupportedError]()
    for variant in search.problem.variants:
        if variant.schedule in schedules:
            try:
                found.append((variant, uniform_cluster(search.costs.of(variant.share), solver)))
            except UnsupportedError as fault:
                unequal.append(fault)
    if not found:
        raise unequal[0]
    return sorted(found, key=lambda pair: pair[1].num_devices)


def offer_each(search: Search, variants: Iterable[UniformVariant], planner: Planner, objective: str) -> None:
    """Simulate the plan of every variant."""
    for plan, own_objective in _planned(search, variants, planner, objective):
        search.offer([plan], own_objective)


def offer_least(search: Search, variants: Iterable[UniformVariant], planner: Planner, objective: str) -> None:
    """Simulate the plan with the least objective of every micro-batch size, over all numbers of pipelines."""
    by_size = dict[int, list[UniformVariant]]()
    for variant, uniform in variants:
        by_size.setdefault(variant.micro_batch, []).append((variant, uniform))
    for alike in by_size.values():
        search.offer_least(_planned(search, alike, planner, objective))


def _planned(
    search: Search, variants: Iterable[UniformVariant], planner: Planner, objective: str
) -> Iterator[tuple[Plan, OwnObjective]]:
    for variant, uniform in variants:
        planned = None if search.out_of_budget else planner(search, variant, uniform)
        if planned is not None and planned[0] is not None:
            yield planned[0], OwnObjective(name=objective, value=planned[1])
