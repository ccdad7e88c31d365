"""How much each step of `milp` leaves, and where its time goes.

Counts are the same in every run; seconds depend on the machine. Every search is asked for the
default gap, and has the time to prove it.
"""

from collections.abc import Mapping
from functools import partial

from benchmarks.harness.driver import Jobs, Parts, Request, parts_under
from benchmarks.harness.measuring import Answer, Tree, answer_of
from benchmarks.problems.registry import STEPS
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import markdown, percent, whole_seconds
from stagecut.planner.solvers.search.options import SolveOptions

PART = "steps: "
THREADS = ("1", "2")
SIZES = (
    ("without positions: built", "arcs without positions"),
    ("after arc fixing", "arcs without positions, after arc fixing"),
    ("after the labels", "arcs without positions, after labels"),
    ("with positions: built", "arcs with positions"),
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
    *("greedy", "network", "arc fixing", "labels", "local search"),
    *("positions", "branching", "multipliers", "MIP", "simulation"),
)

AnswersByThreads = Mapping[str, Mapping[str, Answer]]
"""Answers by name of the spec, then by number of threads."""


def jobs(specs: tuple[Spec, ...] = STEPS) -> Jobs:
    """Jobs by name of the part."""
    return {part_of_steps(spec.name): partial(measure, spec) for spec in specs}


def part_of_steps(spec_name: str) -> str:
    """Name of the part that holds the steps of a spec."""
    return f"{PART}{spec_name}"


def measure(spec: Spec, request: Request) -> Tree:
    """The answers of `milp` with one HiGHS thread and with two, and the number of variants."""
    limit_s = request.time_scale * spec.time_limit_s
    answers = {
        threads: request.answer(spec, "milp", SolveOptions(time_limit_s=limit_s, threads=int(threads))).answer.tree()
        for threads in THREADS
    }
    return {**answers, "variants": len(spec.problem().variants)}


def tables(parts: Parts) -> dict[str, str]:
    """Tables by marker."""
    own = parts_under(parts, PART)
    answers = {name: {threads: answer_of(part[threads]) for threads in THREADS} for name, part in own.items()}
    variants = {name: part["variants"] for name, part in own.items()}
    return {
        "sizes": sizes_table(answers, variants),
        "seconds": seconds_table(answers),
        "threads": threads_table(answers),
    }


def sizes_table(answers: AnswersByThreads, variants: Mapping[str, int]) -> str:
    """Arcs and other counts of all variants together, one column per spec."""
    singles = [of["1"] for of in answers.values()]
    rows = [["variants", *(str(variants[name]) for name in answers)]]
    rows += [[row, *(f"{single.counts.get(name, 0):,}" for single in singles)] for row, name in SIZES]
    rows.append(["gap proven", *(percent(single.gap) for single in singles)])
    return markdown(["", *answers], rows)


def seconds_table(answers: AnswersByThreads) -> str:
    """Seconds and share of each step, one column per spec; steps that no search took are left out."""
    singles = [of["1"] for of in answers.values()]
    steps = [{**single.step_seconds, "all else": _rest_s(single)} for single in singles]
    rows = [
        [name, *(_with_share(of.get(name, 0.0), _search_s(single)) for of, single in zip(steps, singles, strict=True))]
        for name in (*STEP_NAMES, "all else")
        if any(name in of for of in steps)
    ]
    rows.append(["whole search", *(f"{_search_s(single):.1f} s" for single in singles)])
    return markdown(["", *answers], rows)


def threads_table(answers: AnswersByThreads) -> str:
    """Seconds of the whole search, and the share in which HiGHS could use several threads."""
    rows = []
    for name, of in answers.items():
        one, two = (of[threads] for threads in THREADS)
        highs_s = one.step_seconds.get("MIP", 0.0)
        rows.append(
            [
                name,
                whole_seconds(one.search_s),
                whole_seconds(two.search_s),
                percent(highs_s / _search_s(one)),
                "yes" if _is_alike(one, two) else "no",
            ]
        )
    return markdown(["instance", "1 thread", "2 threads", "share of the MIPs", "same answer"], rows)


def _search_s(answer: Answer) -> float:
    return max(answer.search_s or 0.0, 1e-9)


def _rest_s(answer: Answer) -> float:
    return max(0.0, _search_s(answer) - sum(answer.step_seconds.values()))


def _with_share(seconds: float, whole_s: float) -> str:
    return f"{seconds:.2f} s, {100 * seconds / whole_s:.0f} %"


def _is_alike(one: Answer, two: Answer) -> bool:
    return (one.objective_s, one.bound_s, one.counts) == (two.objective_s, two.bound_s, two.counts)
