"""How soon `milp` has a plan and a bound, and how far it closes the gap; options: `benchmarks/harness/driver.py`.

Five sets of problems: large or contended ones chosen because they are hard (`HARD`), some with choices that a job has
to ask for (`ON_REQUEST`), and random ones, which nobody chose: on clusters of the catalogue (`OF_CATALOGUE`), of usual
servers (`OF_SERVERS`) and of any (`DRAWN`). `--only catalogue-`, `--only servers-` and `--only drawn-` measure all of
one set, `--only drawn-07` one of the last, `--only gpt3` all with that in their name. Seconds are those of the search,
without the start of the process.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Answer, Tree, answers_of
from benchmarks.problems.drawn import DRAWN
from benchmarks.problems.of_catalogue import OF_CATALOGUE
from benchmarks.problems.of_servers import OF_SERVERS
from benchmarks.problems.registry import HARD, ON_REQUEST, SMOKE
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import BENCHMARKS_PAGE, markdown, percent, whole_seconds
from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.solvers.search.options import SolveOptions

SOLVER = "milp"
MARKS_S = (3, 10, 60)
"""Seconds after which the gap is shown."""
FIRST_BOUND_S = 3.0
NAMES_ON_REQUEST = {spec.name for spec in ON_REQUEST}
HEAD = ("problem", "first plan", "first bound", *(f"gap at {mark} s" for mark in MARKS_S), "gap", "seconds", "memory")


def jobs(chosen: Iterable[Spec], drawn: Mapping[str, Spec]) -> Jobs:
    """One search for each problem; drawn ones with their number first."""
    specs = {spec.name: spec for spec in chosen} | {f"{number}: {spec.name}": spec for number, spec in drawn.items()}
    return {name: partial(measure, spec) for name, spec in specs.items()}


def measure(spec: Spec, request: Request) -> Tree:
    """The answer of `milp`, asked for the wanted gap."""
    options = SolveOptions(gap=spec.wanted_gap, time_limit_s=request.time_scale * spec.time_limit_s)
    return {SOLVER: request.answer(spec, SOLVER, options).answer.tree()}


def tables(parts: Parts) -> Tables:
    """The chosen problems and the drawn ones one by one, and how many of the random ones are as wanted."""
    answers = {name: answers_of(part)[SOLVER] for name, part in parts.items()}
    drawn, of_catalogue, of_servers = (_numbered(answers, problems) for problems in (DRAWN, OF_CATALOGUE, OF_SERVERS))
    asked = {name: answers[name] for name in answers if name in NAMES_ON_REQUEST}
    hard = {name: answers[name] for name in answers if name not in drawn | of_catalogue | of_servers | asked}
    return {
        BENCHMARKS_PAGE: {
            "certificates": certificates_table(hard),
            "certificates on request": certificates_table(asked),
            "drawn certificates": certificates_table(drawn),
            "certificates of drawn problems": summary("on random clusters", drawn),
            "certificates of the catalogue": summary("on clusters of the catalogue", of_catalogue),
            "certificates of usual servers": summary("on clusters of usual servers", of_servers),
        }
    }


def _numbered(answers: Mapping[str, Answer], problems: Mapping[str, Spec]) -> dict[str, Answer]:
    """The answers whose name begins with the number of one of the problems."""
    return {name: answer for name, answer in answers.items() if name.partition(": ")[0] in problems}


def certificates_table(answers: Mapping[str, Answer]) -> str:
    """One row per problem."""
    return markdown(HEAD, [[name, *_cells(answer)] for name, answer in answers.items()])


def summary(title: str, answers: Mapping[str, Answer]) -> str:
    """How many have a bound soon, and the gap in time; the others by name, the widest first."""
    soon = [name for name, answer in answers.items() if (answer.first_bound_s or FIRST_BOUND_S + 1) <= FIRST_BOUND_S]
    left = {name: answer for name, answer in answers.items() if not _is_closed(answer)}
    worst = sorted(left.items(), key=lambda item: math.inf if item[1].gap is None else item[1].gap, reverse=True)
    rows = [
        [f"a bound within {FIRST_BOUND_S:g} s", f"{len(soon)} of {len(answers)}"],
        ["1 % within 60 s", f"{len(answers) - len(left)} of {len(answers)}"],
        ["open", "; ".join(f"{name} ({percent(answer.gap)})" for name, answer in worst) or "none"],
    ]
    return markdown((title, ""), rows, numbers=False)


def complaint(parts: Parts) -> str:
    """Problems without a plan, and bounds above the time of a plan."""
    answers = {name: answers_of(part)[SOLVER] for name, part in parts.items()}
    return "\n".join(f"{name}: {fault}" for name, answer in answers.items() if (fault := _fault(answer)))


def _fault(answer: Answer) -> str:
    if answer.objective_s is None:
        return f"no plan: {answer.status} {answer.reason}".rstrip()
    if (answer.bound_s or 0.0) > answer.objective_s * (1 + EQUAL_TIMES):
        return "the bound is above the time of the plan"
    return ""


def _is_closed(answer: Answer) -> bool:
    """Whether the gap of 1 %, rounding aside, was reached."""
    return answer.gap is not None and answer.gap <= 0.01 + EQUAL_TIMES


def _cells(answer: Answer) -> Sequence[str]:
    gaps = [percent(answer.gap_after_s.get(f"{mark}")) for mark in MARKS_S]
    memory = "-" if answer.peak_bytes is None else f"{answer.peak_bytes / 2**30:.2f} GiB"
    times = [whole_seconds(answer.first_plan_s), whole_seconds(answer.first_bound_s)]
    return [*times, *gaps, percent(answer.gap), whole_seconds(answer.search_s), memory]


DRIVER = Driver(
    name="certificates",
    jobs=jobs((*HARD, *ON_REQUEST), OF_CATALOGUE | OF_SERVERS | DRAWN),
    quick_jobs=jobs(SMOKE, {}),
    tables=tables,
    complaint=complaint,
)

if __name__ == "__main__":
    DRIVER.main()
