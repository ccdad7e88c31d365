"""What frameworks with one degree of everything can take of a plan, and why they cannot take the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stagecut.planner.core.errors import UnsupportedError
from stagecut.planner.core.job import Job
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformPlan:
    """A plan whose stages are all used alike."""

    model: ModelProfile
    job: Job
    plan: Plan
    replicas: int
    tensor_parallel: int
    recompute: bool
    num_groups: int
    """Device groups of a pipeline: stages / chunks."""

    @property
    def data_parallel(self) -> int:
        """Copies of every layer: replicas of all pipelines."""
        return self.replicas * len(self.plan.pipelines)

    @property
    def samples_per_replica(self) -> int:
        """Of one micro-batch."""
        return self.plan.micro_batch // self.replicas

    @property
    def cuts(self) -> tuple[int, ...]:
        """Boundaries of the stages, both ends included."""
        return cuts_of(self.plan)

    @property
    def devices_by_rank(self) -> tuple[str, ...]:
        """Names of the devices, the pipeline stage varying slowest, then data, then tensor parallelism."""
        return tuple(
            device
            for group in range(self.num_groups)
            for pipeline in self.plan.pipelines
            for device in pipeline.stages[group].devices
        )


def cuts_of(plan: Plan) -> tuple[int, ...]:
    """Boundaries of the stages, both ends included."""
    return (0, *(stage.stop for stage in plan.stages))


def uniform_plan(
    problem: Problem,
    plan: Plan,
    *,
    target: str,
    schedules: Mapping[Schedule, str],
    faults: Sequence[str] = (),
) -> UniformPlan:
    """The plan, if all its stages are used alike.

    Parameters
    ----------
    target
        The framework, for messages.
    schedules
        Those it has, by what it calls them.
    faults
        Further reasons why the framework cannot run the plan.

    Raises
    ------
    UnsupportedError
        With every reason why the framework cannot run the plan.
    """
    reasons = (*_reasons(problem.model, plan, schedules=schedules), *faults)
    if reasons:
        raise UnsupportedError(*(f"{target} cannot run this plan: {reason}" for reason in reasons))
    return UniformPlan(
        model=problem.model,
        job=problem.job,
        plan=plan,
        replicas=plan.stages[0].replicas,
        tensor_parallel=plan.stages[0].tensor_parallel,
        recompute=plan.stages[0].recompute,
        num_groups=len(plan.stages) // plan.chunks,
    )


def _reasons(model: ModelProfile, plan: Plan, *, schedules: Mapping[Schedule, str]) -> tuple[str, ...]:
    stages = plan.stages
    sizes = {size for stage in stages for size in (stage.forward_micro_batch, stage.backward_micro_batch)}
    crossed = _crossed(model, plan)
    rules = (
        (
            plan.schedule not in schedules,
            f"the schedule is {plan.schedule}, it has {', '.join(schedules)}; solve with --schedule",
        ),
        (plan.num_sliced > 0, f"{plan.num_sliced} warm-up micro-batches are halved; solve with --slice 0"),
        (sizes != {plan.micro_batch}, f"stages have micro-batches of their own, {_listed(sizes)} samples"),
        *(
            (len(found) > 1, f"{what} must be the same on every stage, got {_listed(found)}; {advice}")
            for what, found, advice in (
                ("replicas", {stage.replicas for stage in stages}, "solve with --replicas and one number"),
                (
                    "tensor_parallel",
                    {stage.tensor_parallel for stage in stages},
                    "solve with --tensor-parallel and one number",
                ),
                ("recompute", {stage.recompute for stage in stages}, "solve with --recompute never or always"),
            )
        ),
        (
            bool(crossed),
            f"skip edges pass by stage boundaries {', '.join(map(str, crossed[:5]))}, stages talk to neighbours only",
        ),
    )
    return tuple(reason for broken, reason in rules if broken)


def _crossed(model: ModelProfile, plan: Plan) -> list[int]:
    """Stage boundaries that a skip edge crosses on its way to a layer that is not the next one."""
    cuts = [stage.start for stage in plan.stages[1:]]
    return [cut for cut in cuts if any(edge.source < cut <= edge.target for edge in model.skip_edges)]


def _listed(values: set[int] | set[bool]) -> str:
    return ", ".join(str(value).lower() for value in sorted(values))
