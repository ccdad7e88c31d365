"""The same search with one job and with two: longer ones than those of `solver_steps`, asked for 1 %."""

from collections.abc import Mapping
from functools import partial

from benchmarks.harness.driver import Jobs, Parts, Request, parts_under
from benchmarks.harness.measuring import Answer, Answers, Tree, answers_of
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import markdown, percent, ratio, times, whole_seconds
from stagecut.planner.solvers.search.options import SolveOptions

PART = "jobs: "
COLUMNS = ("1 job", "2 jobs")


def jobs(specs: tuple[Spec, ...]) -> Jobs:
    """Jobs by name of the part."""
    return {f"{PART}{spec.name}": partial(measure, spec) for spec in specs}


def measure(spec: Spec, request: Request) -> Tree:
    """The answers of `milp` by number of jobs."""
    options = partial(SolveOptions, gap=spec.wanted_gap, time_limit_s=request.time_scale * spec.time_limit_s)
    return {
        column: request.answer(spec, "milp", options(jobs=number)).answer.tree()
        for number, column in enumerate(COLUMNS, start=1)
    }


def tables(parts: Parts) -> dict[str, str]:
    """Tables by marker."""
    return {"jobs": jobs_table({name: answers_of(part) for name, part in parts_under(parts, PART).items()})}


def jobs_table(found: Mapping[str, Answers]) -> str:
    """Seconds of the whole search with one job and with two."""
    rows = []
    for name, answers in found.items():
        one, two = (answers[column] for column in COLUMNS)
        seconds = [whole_seconds(one.search_s), whole_seconds(two.search_s)]
        speed_up = times(ratio(one.search_s, two.search_s))
        rows.append([name, percent(one.gap), *seconds, speed_up, "yes" if _is_alike(one, two) else "no"])
    return markdown(["instance", "gap", *COLUMNS, "speed-up", "same answer"], rows)


def _is_alike(one: Answer, two: Answer) -> bool:
    return (one.objective_s, one.bound_s, one.counts) == (two.objective_s, two.bound_s, two.counts)
