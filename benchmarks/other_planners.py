"""Search times of the other planners, from the same run as `milp` with one job (`solver_steps`)."""

from collections.abc import Mapping
from functools import partial

from benchmarks.harness.driver import Jobs, Parts, Request, parts_under
from benchmarks.harness.measuring import Answer, Answers, Tree, answer_of, answers_of
from benchmarks.problems.specs import COMPARED, Spec
from benchmarks.report.pages import markdown, ratio, times, whole_seconds
from benchmarks.solver_steps import ONE_JOB, part_of_steps

PART = "planners: "


def jobs(specs: tuple[Spec, ...]) -> Jobs:
    """Jobs by name of the part."""
    return {f"{PART}{spec.name}": partial(measure, spec) for spec in specs}


def measure(spec: Spec, request: Request) -> Tree:
    """Every planner's answer."""
    return request.trees(spec)


def tables(parts: Parts) -> dict[str, str]:
    """Tables by marker."""
    found = {name: answers_of(part) for name, part in parts_under(parts, PART).items()}
    for name, answers in found.items():
        steps = parts.get(part_of_steps(name))
        if steps is not None:
            answers["milp"] = answer_of(steps[ONE_JOB])
    return {"planner seconds": seconds_table(found)}


def seconds_table(found: Mapping[str, Answers]) -> str:
    """One row per planner: seconds of its search, and how many times longer `milp` takes; one column per spec."""
    rows = [
        [f"`{solver}`", *(_cell(answers.get(solver), answers.get("milp")) for answers in found.values())]
        for solver in COMPARED
    ]
    return markdown(("planner", *found), rows)


def _cell(answer: Answer | None, milp: Answer | None) -> str:
    if answer is None or answer.search_s is None:
        return "-"
    ours = "" if milp is None else f", {times(ratio(milp.search_s, answer.search_s), digits=1)}"
    return f"{whole_seconds(answer.search_s)}{ours}"
