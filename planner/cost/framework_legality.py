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
        shown = f"{len(plan.pipelines)} pipelines with {first.replicas} replicas of {first.tensor_parallel} devices"
        yield f"{shown} are not given contiguous ranks on every host by {' or '.join(rules.rank_orders)}"
    copies, several = first.replicas * len(plan.pipelines), len(plan.stages) > 1
    if not rules.has_copies_of_parts and copies > 1 and (several or first.tensor_parallel > 1):
        yield f"{rules.name} has no copies of weights beside several stages or tensor parallelism"
    size = first.replicas * first.tensor_parallel
    divided = several or first.tensor_parallel > 1
    if divided and not problem.fills_pipelines(plan.share, plan.num_microbatches, group_size=size):
        yield f"{plan.num_microbatches} micro-batches are fewer than the stages that there is room for"
