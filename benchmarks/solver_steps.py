"""What the steps of `milp` leave, and where its time goes.

    python -m benchmarks.solver_steps           prints the tables and writes results/solver_steps.json
    python -m benchmarks.solver_steps --docs    also puts them into docs/solver.md

Counts are the same in every run; seconds depend on the machine. Every search is asked for the
default gap, and has the time to prove it.
"""

import argparse
from collections.abc import Mapping, Sequence

from benchmarks.measuring import Measure, Measured, answer_record, measured
from benchmarks.pages import SOLVER_PAGE, keep_results, markdown, percent, put_tables, whole_seconds
from benchmarks.specs import STEPS, Spec
from planner.core.result import Result
from planner.solvers.options import SolveOptions

THREADS = (1, 2)
TIME_LIMIT_S = 400.0
SIZES = (
    ("without positions: built", "arcs without positions"),
    ("after the sieve", "arcs without positions, after sieve"),
    ("after the labels", "arcs without positions, after labels"),
    ("with positions: built", "arcs with positions"),
    ("after the sieve", "arcs with positions, after sieve"),
    ("for the multipliers", "arcs before fixing"),
    ("after fixing", "arcs after fixing"),
    ("questions to the labels", "decisions"),
    ("splits on a stage", "splits"),
    ("MIPs solved", "MIPs solved"),
    ("plans simulated", "plans simulated"),
)
"""Row of the table, and its count."""
STEP_NAMES = (
    *("greedy", "network", "sieve", "labels", "local search"),
    *("positions", "branching", "multipliers", "MIP", "simulation"),
)

Answers = Mapping[tuple[str, int], Measured]
"""By name of the spec, and threads."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all specs, print the tables, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/solver.md")
    chosen = parser.parse_args(arguments)
    answers = measure(STEPS)
    tables = {
        "sizes": sizes_table(STEPS, answers),
        "seconds": seconds_table(STEPS, answers),
        "threads": threads_table(STEPS, answers),
    }
    for name, table in tables.items():
        print(f"{name}\n{table}\n")
    keep_results("solver_steps", {"results": record(answers)})
    if chosen.docs:
        put_tables(SOLVER_PAGE, tables)


def measure(specs: Sequence[Spec], by: Measure = measured) -> Answers:
    """The answer of `milp` to every spec, with one thread for HiGHS and with two."""
    answers = {}
    for spec in specs:
        for threads in THREADS:
            options = SolveOptions(time_limit_s=TIME_LIMIT_S, threads=threads)
            answer = by(spec, "milp", options)
            assert answer is not None
            answers[spec.name, threads] = answer
    return answers


def sizes_table(specs: Sequence[Spec], answers: Answers) -> str:
    """Arcs and other counts of all variants together, a column per spec."""
    results = _with_one_thread(specs, answers)
    counts = [dict(result.counts) for result in results]
    rows = [["variants", *(str(len(spec.problem().variants)) for spec in specs)]]
    rows += [[row, *(f"{of.get(name, 0):,}" for of in counts)] for row, name in SIZES]
    rows.append(["gap proven", *(percent(result.gap) for result in results)])
    return markdown(["", *(spec.name for spec in specs)], rows)


def seconds_table(specs: Sequence[Spec], answers: Answers) -> str:
    """Seconds and share of each step, a column per spec; the steps that none of the searches took left out."""
    results = _with_one_thread(specs, answers)
    steps = [{**dict(result.step_seconds), "all else": _rest_s(result)} for result in results]
    rows = [
        [name, *(_with_share(of.get(name, 0.0), result.seconds) for of, result in zip(steps, results, strict=True))]
        for name in (*STEP_NAMES, "all else")
        if any(name in of for of in steps)
    ]
    rows.append(["whole search", *(f"{result.seconds:.1f} s" for result in results)])
    return markdown(["", *(spec.name for spec in specs)], rows)


def threads_table(specs: Sequence[Spec], answers: Answers) -> str:
    """The whole search, and the share that HiGHS could do on several threads."""
    rows = []
    for spec in specs:
        one, two = (answers[spec.name, threads].result for threads in THREADS)
        highs_s = sum(seconds for name, seconds in one.step_seconds if name == "MIP")
        rows.append(
            [
                spec.name,
                whole_seconds(one.seconds),
                whole_seconds(two.seconds),
                percent(highs_s / one.seconds),
                "yes" if _is_alike(one, two) else "no",
            ]
        )
    return markdown(["instance", "1 thread", "2 threads", "share of the MIPs", "same answer"], rows)


def record(answers: Answers) -> dict[str, object]:
    """What is kept of a run."""
    return {f"{name}, threads {threads}": answer_record(answer) for (name, threads), answer in answers.items()}


def _with_one_thread(specs: Sequence[Spec], answers: Answers) -> list[Result]:
    return [answers[spec.name, 1].result for spec in specs]


def _rest_s(result: Result) -> float:
    return max(0.0, result.seconds - sum(seconds for _, seconds in result.step_seconds))


def _with_share(seconds: float, whole_s: float) -> str:
    return f"{seconds:.2f} s, {100 * seconds / whole_s:.0f} %"


def _is_alike(one: Result, two: Result) -> bool:
    return (one.objective_s, one.bound_s, one.counts) == (two.objective_s, two.bound_s, two.counts)


if __name__ == "__main__":
    main()
