"""What of a plan the framework of its job cannot run."""

from collections.abc import Iterator

from stagecut.planner.core.framework_limits import LIMITS, AlikeStages
from stagecut.planner.core.frameworks import FrameworkRules
from stagecut.planner.core.layer_graphs.degrees import roles_of_stages
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.operators.roles import MeshRoles, meshes_with_roles
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
    try:
        roles = roles_of_stages(problem.model, plan.stages)
    except UnsupportedError as error:
        yield from error.complaints
        return
    if len({own.degrees for own in roles}) > 1:
        yield f"stages divide their layers in several ways, where {rules.name} has the same everywhere"
        return
    for index, (stage, own) in enumerate(zip(plan.stages, roles, strict=True)):
        ways = meshes_with_roles(stage.tensor_parallel, kinds=problem.job.sharding or ())
        if stage.sharding is not None and own not in ways:
            mesh = "x".join(map(str, own.sizes))
            yield f"stage {index}: {own.degrees} on a mesh of {mesh} devices is left out of the search space"
    yield from _alike_faults(problem, plan, rules, roles[0])


def _alike_faults(problem: Problem, plan: Plan, rules: FrameworkRules, roles: MeshRoles) -> Iterator[str]:
    first = plan.stages[0]
    shape = {"replicas": first.replicas, "tensor_parallel": first.tensor_parallel, "experts": roles.degrees.experts}
    if not problem.allows_degrees(plan.share, **shape):
        shown = f"{len(plan.pipelines)} pipelines with {first.replicas} replicas of {first.tensor_parallel} devices"
        yield f"{shown} are not given contiguous ranks on every host by {' or '.join(rules.rank_orders)}"
    yield from (f"{rules.name}: {limit}" for limit in _limits(problem, plan, roles))
    size = first.replicas * first.tensor_parallel
    divided = len(plan.stages) > 1 or first.tensor_parallel > 1
    if divided and not problem.fills_pipelines(plan.share, plan.num_microbatches, group_size=size):
        yield f"{plan.num_microbatches} micro-batches are fewer than the stages that there is room for"


def _limits(problem: Problem, plan: Plan, roles: MeshRoles) -> Iterator[str]:
    """What the framework lacks; what it has in pipelines of several stages only is left out of the search space."""
    assert problem.job.framework is not None
    for num_groups in sorted({1, plan.num_groups}):
        stages = AlikeStages(
            problem=problem,
            degrees=roles.degrees,
            replicas=plan.stages[0].replicas,
            num_pipelines=len(plan.pipelines),
            num_groups=num_groups,
        )
        yield from LIMITS[problem.job.framework](stages)
