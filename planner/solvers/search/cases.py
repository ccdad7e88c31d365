"""A search space for a framework in parts that the solvers know: problems that settle what must be alike in all stages.

A *case* has one number of replicas, one way in which their devices divide all layers (tensor parallelism, or a role for
each axis of a mesh) and one choice of recomputation, and a model whose layers are what lies between boundaries at which
stages may end. Its plans are those of the space with these choices, so whatever is proven of all cases holds for the
space.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import product

from stagecut.planner.core.framework_limits import LIMITS, AlikeStages
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.layer_graphs.merged_shardings import of_layers
from stagecut.planner.core.merged_model import merged
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.operators.roles import (
    EXPERTS,
    WITH_EXPERTS,
    Degrees,
    MeshRoles,
    meshes_with_roles,
    of_tensor_parallelism,
)
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.sharding.options import allowed_strategies
from stagecut.planner.solvers.search.search import Search

Pipelines = tuple[int, ...] | None
CHOICES = {
    Recompute.AUTO: (Recompute.NEVER, Recompute.ALWAYS),
    Recompute.NEVER: (Recompute.NEVER,),
    Recompute.ALWAYS: (Recompute.ALWAYS,),
}
"""What all stages may do where each would have a choice of its own."""


class Case:
    """Some of the plans of a search space, as a problem of their own."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @cached_property
    def costs(self) -> CostModel:
        """Those of its problem."""
        return CostModel(self.problem)

    def entered(self, search: Search) -> Search:
        """A record of the search on this problem, which looks for better plans than the best one known."""
        own = search.fork()
        own.problem, own.costs = self.problem, self.costs
        own.best_plan, own.bound_s = None, 0.0
        return own

    @contextmanager
    def inside(self, search: Search) -> Iterator[Search]:
        """The same; what it has found by the end, however that comes, is taken over."""
        own = self.entered(search)
        try:
            yield own
        finally:
            if own.best_plan is not None:
                own.best_plan = self.unmerged(own.best_plan)
            search.absorb(own)

    def unmerged(self, plan: Plan) -> Plan:
        """A plan of this problem with the layers of the whole one."""
        begins = self.problem.model.unmerged[1].tolist()

        def of(stage: Stage) -> Stage:
            ends = {"start": stage.start, "stop": stage.stop}
            sharding = None if stage.sharding is None else of_layers(self.problem.model, stage.sharding, **ends)
            return replace(stage, start=begins[stage.start], stop=begins[stage.stop], sharding=sharding)

        pipelines = (Pipeline(stages=tuple(map(of, pipeline.stages))) for pipeline in plan.pipelines)
        return replace(plan, pipelines=tuple(pipelines))


def cases_of(problem: Problem) -> tuple[Case, ...] | None:
    """The cases of a problem; None if stages may differ."""
    if problem.rules is None or not problem.rules.is_alike:
        return None
    return tuple(_cases(problem))


def _cases(problem: Problem) -> Iterator[Case]:
    job, divisions = problem.job, list(_divisions(problem))
    for replicas, recompute in product(problem.replica_numbers, CHOICES[job.recompute]):
        for degree, roles in divisions:
            degrees = (roles or of_tensor_parallelism(degree)).degrees
            sizes = tuple(size for size in job.micro_batches if size % (replicas * degrees.data) == 0)
            for cuts, pipelines in _spans(problem, replicas, degrees):
                with suppress(BadInputError):  # no variant has all these
                    settled = replace(
                        job,
                        micro_batches=sizes,
                        pipelines=pipelines,
                        replicas=(replicas,),
                        tensor_parallel=(degree,),
                        recompute=recompute,
                        sharding=None if roles is None else job.sharding,
                    )
                    yield Case(replace(problem, model=merged(problem.model, cuts), job=settled, roles=roles))


def _spans(problem: Problem, replicas: int, degrees: Degrees) -> Iterator[tuple[tuple[int, ...], Pipelines]]:
    """Boundaries where stages may end, and the numbers of pipelines that go with them.

    What a framework has in pipelines of several stages only is left out.
    """
    assert problem.job.framework is not None
    limits, numbers = LIMITS[problem.job.framework], problem.job.pipelines or range(1, problem.cluster.num_devices + 1)

    def has(num_pipelines: int, num_groups: int) -> bool:
        own = {"replicas": replicas, "num_pipelines": num_pipelines, "num_groups": num_groups}
        return not any(limits(AlikeStages(problem=problem, degrees=degrees, **own)))

    one, more = ((has(number, 1), has(number, 2)) for number in (1, 2))
    found = defaultdict[tuple[bool, bool], list[int]](list)
    for number in numbers:  # that there are several copies matters, not how many
        found[one if number == 1 else more].append(number)
    for (has_single, has_several), own in found.items():
        if has_single:
            yield problem.cuts if has_several else (), problem.job.pipelines if len(found) == 1 else tuple(own)


def _divisions(problem: Problem) -> Iterator[tuple[int, MeshRoles | None]]:
    """How many devices a replica may have, and what their axes may divide; None: tensor parallelism."""
    for degree in problem.tensor_parallel_degrees:
        yield degree, None
    kinds = problem.job.sharding or ()
    operators = {operator for layer in problem.model.layers for operator in operators_of(layer)}
    has_experts = any(operator.kind == EXPERTS for operator in operators)
    for degree in problem.divided_degrees:
        for roles in meshes_with_roles(degree, kinds=kinds):
            if has_experts or WITH_EXPERTS.isdisjoint(roles.roles):
                ways = (allowed_strategies(own, roles.sizes, kinds=kinds, roles=roles) for own in operators)
                if all(any(True for _ in own) for own in ways):
                    yield degree, roles
