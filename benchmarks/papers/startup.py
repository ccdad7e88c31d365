"""AutoPipe's start-up: the forwards of the first micro-batches halved, in the plans of `autopipe`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from benchmarks.harness.driver import Jobs, Parts, Request, parts_under
from benchmarks.harness.measuring import Tree
from benchmarks.papers.paper import shortened
from benchmarks.problems.registry import BALANCE
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import markdown, percent
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import can_slice
from stagecut.planner.core.units import format_seconds
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.simulator.timeline import simulate

PART = "start-up: "
SOLVER = "autopipe"
HEAD = (
    *("instance", "start-up", "with halves at no cost", "with halves"),
    *("iteration", "halved micro-batches", "iteration with them", "saved"),
)


def jobs(specs: tuple[Spec, ...] = BALANCE) -> Jobs:
    """Results by name of the part."""
    return {f"{PART}{spec.name}": partial(measure, spec) for spec in specs}


def measure(spec: Spec, request: Request) -> Tree:
    """Start-up and iteration time of one plan, by the number of halved micro-batches, from none.

    Nothing where there is no plan, no start-up, or nothing to halve.
    """
    plan = request.answer(spec, SOLVER).plan
    if plan is None or len(plan.stages) == 1 or not can_slice(plan.schedule, plan.micro_batch):
        return {}
    problem = spec.problem()
    free = replace(problem, job=replace(problem.job, action_overhead_s=0.0))
    counts = range(min(len(plan.stages), plan.num_microbatches) + 1)
    pairs = [seconds_of(problem, replace(plan, num_sliced=count)) for count in counts]
    return {
        "startup_s": [startup_s for startup_s, _ in pairs],
        "iteration_s": [iteration_s for _, iteration_s in pairs],
        "free_startup_s": seconds_of(free, replace(plan, num_sliced=1))[0],
    }


def seconds_of(problem: Problem, plan: Plan) -> tuple[float, float]:
    """Time until the last stage begins its first forward, and iteration time."""
    timeline = simulate(CostModel(problem).plan(plan))
    last = (timeline.kind == TaskKind.FORWARD) & (timeline.stage == timeline.num_stages - 1)
    return float(timeline.start_s[last].min()), timeline.iteration_s


def tables(parts: Parts) -> dict[str, str]:
    """Tables by marker."""
    found = {name: part for name, part in parts_under(parts, PART).items() if part}
    return {"start-up": f"{headline(found)}\n\n{table(found)}"}


def headline(found: Mapping[str, Tree]) -> str:
    """The figure stated in the abstract, and the same figure here."""
    saved = [1 - part["free_startup_s"] / part["startup_s"][0] for part in found.values()]
    ours = f"{percent(min(saved))} to {percent(max(saved))} where one more action costs nothing" if saved else "-"
    return f"The abstract of AutoPipe: start-up overhead reduced by 50 %. Here: {ours}."


def table(found: Mapping[str, Tree]) -> str:
    """One row per plan: start-up with and without halves, the fastest number of halves, and what it saves."""
    rows = [[name, *_cells(part)] for name, part in shortened(found).items()]
    return markdown(HEAD, rows)


def _cells(part: Tree) -> list[str]:
    startup_s, iteration_s = part["startup_s"], part["iteration_s"]
    least_s = min(iteration_s)
    return [
        format_seconds(startup_s[0]),
        format_seconds(part["free_startup_s"]),
        format_seconds(startup_s[1]),
        format_seconds(iteration_s[0]),
        str(iteration_s.index(least_s)),
        format_seconds(least_s),
        percent(1 - least_s / iteration_s[0]),
    ]
