"""The formulations against each other: do they agree, and which is faster.

    python -m benchmarks.formulations           prints the tables and writes results/formulations.json
    python -m benchmarks.formulations --docs    also puts them into docs/solver.md

Three tables: the optimum of the shared rows by three formulations and four solvers; seconds to the
same proven gap, the textbook formulation against `milp`; and `dp` against `milp`.
"""

import argparse
from collections.abc import Mapping, Sequence

from benchmarks.measuring import Measure, Measured, answer_record, measured, seconds_to_gap
from benchmarks.pages import SOLVER_PAGE, keep_results, markdown, percent, put_tables, whole_seconds
from benchmarks.specs import DP, TEXTBOOK, TEXTBOOK_RACE, Spec
from planner.solvers.options import RowChoice, SolveOptions

SAME = 1e-9
"""Relative difference of optima that is rounding."""
AGREEING = ("milp", "dp", "textbook-milp", "textbook-milp-cbc")
RACING = ("textbook-milp", "textbook-milp-cbc")
ALL_ROWS, SHARED_ROWS = "milp", "milp --rows shared"

Answers = Mapping[str, Measured | None]
"""By solver."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all specs, print the tables, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/solver.md")
    chosen = parser.parse_args(arguments)
    optima = {spec.name: shared_optima(spec) for spec in TEXTBOOK}
    races = {spec.name: race(spec) for spec in TEXTBOOK_RACE}
    rivals = {spec.name: dp_and_milp(spec) for spec in DP}
    tables = {"optima": optima_table(optima), "race": race_table(races), "dp": dp_table(rivals)}
    for name, table in tables.items():
        print(f"{name}\n{table}\n")
    keep_results("formulations", {"optima": _records(optima), "race": _race_records(races), "dp": _records(rivals)})
    if chosen.docs:
        put_tables(SOLVER_PAGE, tables)


def shared_optima(spec: Spec, by: Measure = measured) -> Answers:
    """Every solver of the shared rows, asked for their optimum."""
    options = SolveOptions(gap=0.0, time_limit_s=spec.time_limit_s, rows=RowChoice.SHARED)
    return {solver: by(spec, solver, options) for solver in AGREEING}


def optima_table(optima: Mapping[str, Answers]) -> str:
    """The optimum, whether all that finished agree, and the seconds of each."""
    rows = []
    for name, answers in optima.items():
        values = _row_bounds(answers)
        value = f"{values[0]:.9g} s" if values else "-"
        rows.append([name, value, _agreement(values), *(_finish(answers[solver]) for solver in AGREEING)])
    return markdown(["instance", "least rows", "same", *AGREEING], rows)


def race(spec: Spec, by: Measure = measured) -> list[tuple[str, Measured, Measured]]:
    """Per engine: what the textbook formulation proves in its time, and `milp` asked for the same gap."""
    runs = []
    for solver in RACING:
        slow = by(spec, solver, SolveOptions(time_limit_s=spec.time_limit_s))
        if slow is None or not slow.result.gap:
            continue
        fast = by(spec, "milp", SolveOptions(gap=slow.result.gap, time_limit_s=spec.time_limit_s))
        assert fast is not None
        runs.append((solver, slow, fast))
    return runs


def race_table(races: Mapping[str, Sequence[tuple[str, Measured, Measured]]]) -> str:
    """Seconds of either search to the gap that the textbook formulation proved, and their ratio."""
    rows = []
    for name, runs in races.items():
        for solver, slow, fast in runs:
            gap = slow.result.gap or 0.0
            slow_s, fast_s = seconds_to_gap(slow.result, gap), fast.result.seconds
            ratio = "-" if slow_s is None else f"{slow_s / fast_s:.0f}x"
            gaps = percent(gap), percent(fast.result.gap)
            rows.append([name, solver, *gaps, whole_seconds(slow_s), f"{fast_s:.2f} s", ratio])
    return markdown(["instance", "textbook by", "its gap", "gap of milp", "textbook", "milp", "ratio"], rows)


def dp_and_milp(spec: Spec, by: Measure = measured) -> Answers:
    """`dp`, `milp` on the same rows, and `milp` as it is."""
    shared = SolveOptions(time_limit_s=spec.time_limit_s, rows=RowChoice.SHARED)
    return {
        "dp": by(spec, "dp", shared),
        SHARED_ROWS: by(spec, "milp", shared),
        ALL_ROWS: by(spec, "milp", SolveOptions(time_limit_s=spec.time_limit_s)),
    }


def dp_table(rivals: Mapping[str, Answers]) -> str:
    """Seconds to the optimum of the shared rows, whether it is the same; gaps, and the seconds of `milp` to its own."""
    rows = []
    for name, answers in rivals.items():
        dp, whole = answers["dp"], answers[ALL_ROWS]
        assert dp is not None and whole is not None
        rows.append(
            [
                name,
                _agreement(_row_bounds({solver: answers[solver] for solver in ("dp", SHARED_ROWS)})),
                _finish(dp),
                _finish(answers[SHARED_ROWS]),
                percent(dp.result.gap),
                whole_seconds(whole.result.seconds),
                percent(whole.result.gap),
            ]
        )
    head = ["instance", "same optimum", "dp", SHARED_ROWS, "gap of dp", "milp", "gap of milp"]
    return markdown(head, rows)


def _row_bounds(answers: Answers) -> list[float]:
    bounds = [answer.result.row_bound_s for answer in answers.values() if answer is not None]
    return [bound for bound in bounds if bound is not None]


def _agreement(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "-"
    return "yes" if max(values) - min(values) <= SAME * max(values) else "no"


def _finish(answer: Measured | None) -> str:
    """Seconds to the optimum of the rows, or how long it was not found."""
    if answer is None:
        return "-"
    seconds = whole_seconds(answer.result.seconds)
    return seconds if answer.result.row_bound_s is not None else f"open after {seconds}"


def _records(all_answers: Mapping[str, Answers]) -> dict[str, object]:
    return {
        name: {solver: answer_record(answer) for solver, answer in answers.items()}
        for name, answers in all_answers.items()
    }


def _race_records(races: Mapping[str, Sequence[tuple[str, Measured, Measured]]]) -> dict[str, object]:
    return {
        name: {solver: {"textbook": answer_record(slow), "milp": answer_record(fast)} for solver, slow, fast in runs}
        for name, runs in races.items()
    }


if __name__ == "__main__":
    main()
