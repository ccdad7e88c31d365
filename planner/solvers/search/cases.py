"""A search space for a framework in parts that the solvers know: problems that settle what must be alike in all stages.

A *case* has one number of replicas, one degree of tensor parallelism and one choice of recomputation, and a model whose
layers are what lies between boundaries at which stages may end. Its plans are those of the space with these choices, so
whatever is proven of all cases holds for the space.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import product

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.merged_model import merged
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Pipeline, Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
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

        def of(pipeline: Pipeline) -> Pipeline:
            stages = (replace(own, start=begins[own.start], stop=begins[own.stop]) for own in pipeline.stages)
            return Pipeline(stages=tuple(stages))

        return replace(plan, pipelines=tuple(map(of, plan.pipelines)))


def cases_of(problem: Problem) -> tuple[Case, ...] | None:
    """The cases of a problem; None if stages may differ."""
    if problem.rules is None or not problem.rules.is_alike:
        return None
    return tuple(_cases(problem))


def _cases(problem: Problem) -> Iterator[Case]:
    job = problem.job
    degrees, modes = problem.tensor_parallel_degrees, CHOICES[job.recompute]
    for replicas, degree, recompute in product(problem.replica_numbers, degrees, modes):
        for cuts, pipelines in _spans(problem, replicas, degree):
            sizes = tuple(size for size in job.micro_batches if size % replicas == 0)
            with suppress(BadInputError):  # no variant has all these
                settled = replace(
                    job,
                    micro_batches=sizes,
                    pipelines=pipelines,
                    replicas=(replicas,),
                    tensor_parallel=(degree,),
                    recompute=recompute,
                )
                yield Case(replace(problem, model=merged(problem.model, cuts), job=settled))


def _spans(problem: Problem, replicas: int, degree: int) -> Iterator[tuple[Sequence[int], Pipelines]]:
    """Boundaries, and the numbers of pipelines that go with them."""
    pipelines, rules = problem.job.pipelines, problem.rules
    if rules is None or rules.has_copies_of_parts:
        yield problem.cuts, pipelines
        return
    if replicas == 1 and 1 in (pipelines or (1,)):
        yield problem.cuts, (1,)
    if degree == 1:
        yield (), pipelines
