"""Changes of a layout that make it fit in memory."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from stagecut.planner.analysis.layout import Layout, plans_of, play_layout, stages_short
from stagecut.planner.core.job import Job, Recompute
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.sublot_sizes import divisors
from stagecut.planner.cost.cost_model import CostModel


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChange:
    """A change after which a layout fits."""

    options: str
    """As `plan estimate` takes it."""
    iteration_s: float


_Changed = tuple[str, Problem, Layout]


def fitting_changes(problem: Problem, layout: Layout) -> tuple[LayoutChange, ...]:
    """Of every kind of change the smallest one tried with which the layout fits, the fastest first."""
    found = (change for kind in _kinds(problem, layout) if (change := _first_fitting(kind)) is not None)
    return tuple(sorted(found, key=lambda change: change.iteration_s))


def _first_fitting(changes: Iterator[_Changed]) -> LayoutChange | None:
    for options, problem, layout in changes:
        with suppress(BadInputError):
            costs = CostModel(problem)
            if not all(stages_short(costs.plan(plan)) for plan in plans_of(problem, layout)):
                iteration_s = play_layout(problem, layout).timeline.iteration_s
                return LayoutChange(options=options, iteration_s=iteration_s)
    return None


def _kinds(problem: Problem, layout: Layout) -> Iterator[Iterator[_Changed]]:
    """Changes by kind, those of each from small to large."""
    job = problem.job
    (size,) = job.micro_batches
    if job.recompute is Recompute.NEVER:
        yield _jobs(problem, layout, {"--recompute auto": replace(job, recompute=Recompute.AUTO)})
    if not job.zero1:
        yield _jobs(problem, layout, {"--zero1": replace(job, zero1=True)})
    if job.schedules not in ((Schedule.ONE_F_ONE_B,), (Schedule.INTERLEAVED,)):
        yield _jobs(problem, layout, {"--schedule 1f1b": replace(job, schedules=(Schedule.ONE_F_ONE_B,))})
    smaller = [each for each in reversed(divisors(size)) if each < size]
    yield _jobs(problem, layout, {f"--micro-batch {each}": replace(job, micro_batches=(each,)) for each in smaller})
    if len(layout.tensor_parallel) == 1:
        yield _more_devices(problem, layout)
    if not layout.first_layers and max(len(layout.replicas), len(layout.tensor_parallel)) == 1:
        yield _more_stages(problem, layout)


def _jobs(problem: Problem, layout: Layout, jobs: dict[str, Job]) -> Iterator[_Changed]:
    for options, job in jobs.items():
        with suppress(BadInputError):
            yield options, replace(problem, job=job), layout


def _more_devices(problem: Problem, layout: Layout) -> Iterator[_Changed]:
    """More devices for each replica, as many as an island has."""
    degree = 2 * layout.tensor_parallel[0]
    while degree <= max(island.count for server in problem.cluster.servers for island in server.islands):
        job = replace(problem.job, tensor_parallel=(degree,))
        yield f"--tensor-parallel {degree}", replace(problem, job=job), replace(layout, tensor_parallel=(degree,))
        degree *= 2


def _more_stages(problem: Problem, layout: Layout) -> Iterator[_Changed]:
    """More stages, up to a quarter more each time, as many as there are devices."""
    (chunks,) = {variant.chunks for variant in problem.variants}
    size = layout.replicas[0] * layout.tensor_parallel[0] * problem.variants[0].share.num_pipelines
    most = min(problem.model.num_layers, problem.cluster.num_devices // size * chunks)
    num_stages = layout.num_stages
    while (num_stages := num_stages + max(1, num_stages // (4 * chunks)) * chunks) <= most:
        yield f"--stages {num_stages}", problem, replace(layout, num_stages=num_stages)
