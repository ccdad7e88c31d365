"""Plans for frameworks that require the same parallel degrees on every stage."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stagecut.planner.core.framework_limits import LIMITS, AlikeStages
from stagecut.planner.core.frameworks import RULES, Framework, RankOrder
from stagecut.planner.core.layer_graphs.degrees import roles_of_stages
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.operators.roles import Degrees, MeshRoles
from stagecut.planner.core.plan import Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.writers.ranks import RankedDevices, host_of, ranked

ADVICE = {
    "replicas": "a single number for --replicas",
    "tensor_parallel": "a single number for --tensor-parallel",
    "recompute": "--recompute never or always",
}
"""How to get a plan in which a field is the same for every stage."""
UNDIVIDED = "solve with --sharding none"


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformPlan(AlikeStages):
    """A plan whose stages all have the same degrees."""

    plan: Plan
    ranked_devices: RankedDevices
    """Which device has which rank."""

    @property
    def stage(self) -> Stage:
        """A stage; the degrees of all others are the same."""
        return self.plan.stages[0]

    @property
    def samples_per_replica(self) -> int:
        """Samples of one micro-batch for each of the parts of data parallelism."""
        return self.plan.micro_batch // (self.stage.replicas * self.degrees.data)


def cuts_of(plan: Plan) -> tuple[int, ...]:
    """Boundaries of the stages, including both ends."""
    return (0, *(stage.stop for stage in plan.stages))


def is_tied(model: ModelProfile) -> bool:
    """Whether the head holds the weights of the embedding."""
    return any(layer.shared_params_bytes > 0 for layer in model.layers)


def uniform_plan(
    problem: Problem,
    plan: Plan,
    *,
    framework: Framework,
    schedules: Mapping[Schedule, str],
    faults: Sequence[str] = (),
    orders: Callable[[int], Sequence[RankOrder]] = lambda _: (RankOrder.STAGES_LAST,),
) -> UniformPlan:
    """Check that all stages of a plan have the same degrees, and that the framework supports it.

    The framework has its own names for the `schedules` it supports; `faults` are further reasons why it cannot run the
    plan, and `orders` are those in which it can count ranks, the preferred one first, by the degree of expert
    parallelism. Raises an UnsupportedError with every reason.
    """
    target = RULES[framework].name
    reasons = [*_reasons(problem.model, plan, schedules=schedules), *faults]
    roles, unlike = _roles(problem.model, plan)
    if unlike:
        raise _refusal(target, [*reasons, *unlike])
    degrees = roles[0].degrees
    ranked_devices, is_possible = ranked(plan, roles, orders(degrees.experts))
    uniform = UniformPlan(
        problem=problem,
        degrees=degrees,
        replicas=plan.stages[0].replicas,
        num_pipelines=len(plan.pipelines),
        num_groups=plan.num_groups,
        plan=plan,
        ranked_devices=ranked_devices,
    )
    scattered = [] if is_possible or reasons else [_scattered(ranked_devices)]
    if reasons := [*reasons, *LIMITS[framework](uniform), *scattered]:
        raise _refusal(target, reasons)
    return uniform


def _refusal(target: str, reasons: Iterable[str]) -> UnsupportedError:
    return UnsupportedError(*(f"{target} cannot run this plan: {reason}" for reason in reasons))


def _scattered(ranked_devices: RankedDevices) -> str:
    """Why the ranks cannot be placed, with the first host that would need ranks apart from each other."""
    names = [host.name for host in ranked_devices.hosts]
    name = next(name for name in names if names.count(name) > 1)
    ranks = [str(rank) for rank, device in enumerate(ranked_devices.devices) if host_of(device) == name]
    shown = ", ".join(ranks[:8]) + (" ..." if len(ranks) > 8 else "")
    return (
        f"torchrun gives every host consecutive ranks, but host {name} would need {shown}, whatever the order of "
        f"hosts ({ranked_devices.order}); solve with --pipelines 1"
    )


def _roles(model: ModelProfile, plan: Plan) -> tuple[tuple[MeshRoles, ...], list[str]]:
    """The roles of every stage's axes, and why these are not alike."""
    try:
        roles = roles_of_stages(model, plan.stages)
    except UnsupportedError as error:
        return (), [f"{complaint}; {UNDIVIDED}" for complaint in error.complaints]
    found = dict[Degrees, int]()
    for index, own in enumerate(roles):
        found.setdefault(own.degrees, index)
    if len(found) == 1 or all(stage.sharding is None for stage in plan.stages):
        return roles, []
    shown = "; ".join(f"stage {index}: {degrees}" for degrees, index in found.items())
    return roles, [f"all stages must divide their layers alike, got {shown}; {UNDIVIDED}"]


def _reasons(model: ModelProfile, plan: Plan, *, schedules: Mapping[Schedule, str]) -> Iterator[str]:
    if plan.schedule not in schedules:
        yield f"it supports the schedules {', '.join(schedules)}, not {plan.schedule}; solve with --schedule"
    if plan.num_sliced > 0:
        yield f"{plan.num_sliced} warm-up micro-batches are halved; solve with --slice 0"
    if plan.is_unequal:
        yield "micro-batches are unequal; solve with equal sizes such as --micro-batch 1,2,4"
    for field, advice in ADVICE.items():
        found = {getattr(stage, field) for stage in plan.stages}
        if len(found) > 1:
            yield f"{field} must be the same for every stage, got {_listed(found)}; solve with {advice}"
    cuts = [stage.start for stage in plan.stages[1:]]
    if crossed := [cut for cut in cuts if any(edge.source < cut <= edge.target for edge in model.skip_edges)]:
        shown = ", ".join(map(str, crossed[:5]))
        yield f"skip edges cross stage boundaries {shown}, but stages talk to neighbours only"
    yield from _indivisible_heads(model, plan)


def _indivisible_heads(model: ModelProfile, plan: Plan) -> Iterator[str]:
    """Frameworks give each device of tensor parallelism as many heads as the others."""
    degrees = {stage.tensor_parallel for stage in plan.stages if stage.sharding is None}
    for heads in sorted(model.head_sizes):
        for degree in sorted(degree for degree in degrees if heads % degree):
            yield f"{heads} heads cannot be divided evenly by --tensor-parallel {degree}"


def _listed(values: set[int] | set[bool]) -> str:
    return ", ".join(str(value).lower() for value in sorted(values))
