"""The formulations compared: whether they agree, and which is faster.

Three tables: the optimum of the shared rows by three formulations and four solvers; seconds to the
same proven gap, the textbook formulation against `milp`; and `dp` against `milp`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from benchmarks.harness.driver import Jobs, Parts, Request, parts_under
from benchmarks.harness.measuring import Answer, Answers, Tree, answer_of, answers_of
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import markdown, percent, ratio, times, whole_seconds
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions

SAME = 1e-9
"""Relative difference below which optima count as equal: rounding."""
AGREEING = ("milp", "dp", "textbook-milp", "textbook-milp-cbc")
ALL_ROWS, SHARED_ROWS = "milp", "milp --rows shared"
OPTIMA, RACE, DP = "optima: ", "race: ", "dp: "
"""Prefixes of the names of the parts."""


def jobs(*, textbook: tuple[Spec, ...], races: tuple[Spec, ...], dp: tuple[Spec, ...]) -> Jobs:
    """Jobs by name of the part."""
    return {
        **{f"{OPTIMA}{spec.name}": partial(shared_optima, spec) for spec in textbook},
        **{f"{RACE}{spec.name}": partial(race, spec) for spec in races},
        **{f"{DP}{spec.name}": partial(dp_and_milp, spec) for spec in dp},
    }


def tables(parts: Parts) -> dict[str, str]:
    """Tables by marker."""
    return {
        "optima": optima_table(_answers(parts, OPTIMA)),
        "race": race_table(parts_under(parts, RACE)),
        "dp": dp_table(_answers(parts, DP)),
    }


def shared_optima(spec: Spec, request: Request) -> Tree:
    """The answer of every solver that can minimise the shared rows."""
    options = SolveOptions(gap=0.0, time_limit_s=_limit_s(spec, request), rows=RowChoice.SHARED)
    return {solver: request.answer(spec, solver, options).answer.tree() for solver in AGREEING}


def optima_table(optima: Mapping[str, Answers]) -> str:
    """The optimum, whether all solvers that finished agree on it, and the seconds of each."""
    rows = []
    for name, answers in optima.items():
        values = _row_bounds(answers.values())
        value = f"{values[0]:.9g} s" if values else "-"
        rows.append([name, value, _agreement(values), *(_finish(answers[solver]) for solver in AGREEING)])
    return markdown(["instance", "least rows", "same", *AGREEING], rows)


def race(spec: Spec, request: Request) -> Tree:
    """What the textbook formulation proves in its time on each engine, and `milp` given the same gap to prove."""
    limit_s = _limit_s(spec, request)
    runs = {}
    for solver in spec.solvers:
        slow = request.answer(spec, solver, SolveOptions(time_limit_s=limit_s)).answer
        if slow.gap:
            fast = request.answer(spec, "milp", SolveOptions(gap=slow.gap, time_limit_s=limit_s)).answer
            runs[solver] = {"textbook": slow.tree(), "milp": fast.tree()}
    return runs


def race_table(races: Mapping[str, Tree]) -> str:
    """Seconds of both searches to the gap that the textbook formulation proved, and their ratio."""
    rows = []
    for name, runs in races.items():
        for solver, pair in runs.items():
            slow, fast = answer_of(pair["textbook"]), answer_of(pair["milp"])
            slow_s, fast_s = slow.seconds_to_own_gap, fast.search_s or 0.0
            gaps = percent(slow.gap), percent(fast.gap)
            faster = times(ratio(slow_s, fast_s), digits=0)
            rows.append([name, solver, *gaps, whole_seconds(slow_s), f"{fast_s:.2f} s", faster])
    return markdown(["instance", "textbook by", "its gap", "gap of milp", "textbook", "milp", "ratio"], rows)


def dp_and_milp(spec: Spec, request: Request) -> Tree:
    """Answers of `dp`, of `milp` on the same rows, and of `milp` with all rows."""
    limit_s = _limit_s(spec, request)
    shared = SolveOptions(time_limit_s=limit_s, rows=RowChoice.SHARED)
    return {
        "dp": request.answer(spec, "dp", shared).answer.tree(),
        SHARED_ROWS: request.answer(spec, "milp", shared).answer.tree(),
        ALL_ROWS: request.answer(spec, "milp", SolveOptions(time_limit_s=limit_s)).answer.tree(),
    }


def dp_table(found: Mapping[str, Answers]) -> str:
    """Seconds to the optimum of the shared rows and whether all agree on it; gaps, and seconds of `milp` to its own."""
    rows = []
    for name, answers in found.items():
        dp, shared, whole = (answers[solver] for solver in ("dp", SHARED_ROWS, ALL_ROWS))
        rows.append(
            [
                name,
                _agreement(_row_bounds((dp, shared))),
                _finish(dp),
                _finish(shared),
                percent(dp.gap),
                whole_seconds(whole.search_s),
                percent(whole.gap),
            ]
        )
    head = ["instance", "same optimum", "dp", SHARED_ROWS, "gap of dp", "milp", "gap of milp"]
    return markdown(head, rows)


def _limit_s(spec: Spec, request: Request) -> float:
    return request.time_scale * spec.time_limit_s


def _answers(parts: Parts, prefix: str) -> dict[str, Answers]:
    return {name: answers_of(part) for name, part in parts_under(parts, prefix).items()}


def _row_bounds(answers: Iterable[Answer]) -> list[float]:
    return [answer.row_bound_s for answer in answers if answer.row_bound_s is not None]


def _agreement(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "-"
    return "yes" if max(values) - min(values) <= SAME * max(values) else "no"


def _finish(answer: Answer) -> str:
    """Seconds to the optimum of the rows, or for how long it was not found."""
    if answer.search_s is None:
        return "-"
    seconds = whole_seconds(answer.search_s)
    return seconds if answer.row_bound_s is not None else f"open after {seconds}"
