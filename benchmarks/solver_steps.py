"""How much each step of `milp` leaves, and where its time goes.

Counts are the same in every run; seconds depend on the machine. Every search is asked for the
default gap, and has the time to prove it.
"""

from collections.abc import Mapping
from functools import partial

from benchmarks.harness.driver import Jobs, Parts, Request, parts_under
from benchmarks.harness.measuring import Answer, Answers, Tree, answer_of
from benchmarks.problems.registry import STEPS
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import markdown, percent
from stagecut.planner.solvers.search.options import SolveOptions

PART = "steps: "
ONE_JOB = "1 job"
SIZES = (
    ("variants looked at", "variants looked at"),
    ("variants built", "variants built"),
    ("stages on device groups", "stages"),
    ("after arc fixing", "stages, after arc fixing"),
    ("arcs without positions: built", "arcs without positions"),
    ("after arc fixing", "arcs without positions, after arc fixing"),
    ("after the labels", "arcs without positions, after labels"),
    ("arcs with positions: built", "arcs with positions"),
    ("after arc fixing", "arcs with positions, after arc fixing"),
    ("for the multipliers", "arcs before fixing"),
    ("after the multipliers", "arcs after fixing"),
    ("questions to the labels", "decisions"),
    ("splits on a stage", "splits"),
    ("MIPs solved", "MIPs solved"),
    ("plans simulated", "plans simulated"),
)
"""Rows of the table, and their counts."""
STEP_NAMES = (
    *("fluid bounds", "greedy", "network", "arc fixing", "labels", "local search"),
    *("positions", "branching", "multipliers", "MIP", "simulation"),
)


def jobs(specs: tuple[Spec, ...] = STEPS) -> Jobs:
    """Jobs by name of the part."""
    return {part_of_steps(spec.name): partial(measure, spec) for spec in specs}


def part_of_steps(spec_name: str) -> str:
    """Name of the part that holds the steps of a spec."""
    return f"{PART}{spec_name}"


def measure(spec: Spec, request: Request) -> Tree:
    """The answer of `milp` with one job, and the number of variants."""
    options = SolveOptions(time_limit_s=request.time_scale * spec.time_limit_s, jobs=1)
    answer = request.answer(spec, "milp", options).answer
    return {ONE_JOB: answer.tree(), "variants": len(spec.problem().variants)}


def tables(parts: Parts) -> dict[str, str]:
    """Tables by marker."""
    own = parts_under(parts, PART)
    answers = {name: answer_of(part[ONE_JOB]) for name, part in own.items()}
    variants = {name: part["variants"] for name, part in own.items()}
    return {"sizes": sizes_table(answers, variants), "seconds": seconds_table(answers)}


def sizes_table(answers: Answers, variants: Mapping[str, int]) -> str:
    """Arcs and other counts of all variants together, one column per spec; what is zero in all of them is left out."""
    singles = list(answers.values())
    rows = [["variants", *(str(variants[name]) for name in answers)]]
    counts = [(row, [single.counts.get(name, 0) for single in singles]) for row, name in SIZES]
    rows += [[row, *(f"{count:,}" for count in own)] for row, own in counts if any(own)]
    rows.append(["gap proven", *(percent(single.gap) for single in singles)])
    return markdown(["", *answers], rows)


def seconds_table(answers: Answers) -> str:
    """Seconds and share of each step, one column per spec; steps that no search took are left out."""
    singles = list(answers.values())
    steps = [{**single.step_seconds, "all else": _rest_s(single)} for single in singles]
    rows = [
        [name, *(_with_share(of.get(name, 0.0), _search_s(single)) for of, single in zip(steps, singles, strict=True))]
        for name in (*STEP_NAMES, "all else")
        if any(name in of for of in steps)
    ]
    rows.append(["whole search", *(f"{_search_s(single):.1f} s" for single in singles)])
    return markdown(["", *answers], rows)


def _search_s(answer: Answer) -> float:
    return max(answer.search_s or 0.0, 1e-9)


def _rest_s(answer: Answer) -> float:
    return max(0.0, _search_s(answer) - sum(answer.step_seconds.values()))


def _with_share(seconds: float, whole_s: float) -> str:
    return f"{seconds:.2f} s, {100 * seconds / whole_s:.0f} %"
