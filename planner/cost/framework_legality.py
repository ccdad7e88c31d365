"""What of a plan the framework of its job cannot run."""

from collections.abc import Iterator

from stagecut.planner.core.frameworks import FrameworkRules
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem


def framework_faults(problem: Problem, plan: Plan) -> Iterator[str]:
    """In words; none without a framework. The schedule and what the job refuses itself are not looked at."""
    rules = problem.rules
    if rules is None:
        return
    allowed = {0, *problem.cuts}
    for index, stage in enumerate(plan.stages):
        if stage.start not in allowed:
            layers = problem.model.layers
            between = f"{layers[stage.start - 1].name!r} and {layers[stage.start].name!r}"
            yield f"stage {index}: begins between {between}, where {rules.name} cannot cut"
    if rules.is_alike:
        yield from _unlike_faults(problem, plan, rules)


def _unlike_faults(problem: Problem, plan: Plan, rules: FrameworkRules) -> Iterator[str]:
    unlike = [
        field.replace("_", " ")
        for field in ("replicas", "tensor_parallel", "recompute")
        if len({getattr(stage, field) for stage in plan.stages}) > 1
    ]
    if unlike:
        yield f"stages differ in {', '.join(unlike)}, which {rules.name} has the same everywhere"
        return
    first = plan.stages[0]
    degrees = {"replicas": first.replicas, "tensor_parallel": first.tensor_parallel}
    if not problem.allows_degrees(plan.share, **degrees):
        copies = f"{len(plan.pipelines)} pipelines with {first.replicas} replicas of {first.tensor_parallel} devices"
        yield f"{copies} are not given contiguous ranks on every host by {' or '.join(rules.rank_orders)}"
    if not rules.has_copies_of_pipelines and len(plan.stages) > 1 and first.replicas * len(plan.pipelines) > 1:
        yield f"{rules.name} has no copies of weights beside pipelines of several stages"
