"""Quality of plans: simulated time of every solver, bound, gap.

    python -m benchmarks.quality                prints the table and writes results/quality.json
    python -m benchmarks.quality --readme       also puts the table into README.md

Every search has a process of its own, one after another on one machine. Times of iterations are
simulated and reproducible; seconds depend on the machine, and so do the plans and bounds of a
search that its time limit ends.
"""

import argparse
from collections.abc import Sequence

from benchmarks.measuring import Measure, Measured, answer_record, measured, seconds_to_gap
from benchmarks.pages import README, keep_results, markdown, percent, put_tables, whole_seconds
from benchmarks.specs import QUALITY, Spec
from planner.core.units import format_seconds
from planner.solvers.options import SolveOptions

SOLVERS = ("even", "greedy", "dp", "milp")
OTHERS_TIME_LIMIT_S = 60.0
"""Of all solvers but `milp`, which has the spec's."""
START_S = 3.0
"""For the start of the process and whatever follows the time limit: the whole process keeps to the spec's seconds."""
HEAD = (
    *("instance", "devices", *SOLVERS, "best time", "bound", "gap", "seconds", "memory"),
    "wanted gap within",
    "proven after",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all specs, print the table, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    chosen = parser.parse_args(arguments)
    results = {}
    for spec in QUALITY:
        results[spec.name] = measure(spec)
        print(table([spec], results).splitlines()[-1], flush=True)
    whole = table(QUALITY, results)
    print(f"\n{whole}")
    keep_results("quality", {"results": record(results)})
    if chosen.readme:
        put_tables(README, {"quality table": whole})


def measure(spec: Spec, by: Measure = measured) -> dict[str, Measured | None]:
    """The answer of every solver to one spec."""
    return {solver: by(spec, solver, SolveOptions(time_limit_s=_time_limit_s(spec, solver))) for solver in SOLVERS}


def table(specs: Sequence[Spec], results: dict[str, dict[str, Measured | None]]) -> str:
    """One row per spec; times relative to the fastest plan, its time in full."""
    return markdown(HEAD, [_row(spec, results[spec.name]) for spec in specs])


def record(results: dict[str, dict[str, Measured | None]]) -> dict[str, object]:
    """What is kept of a run."""
    return {
        name: {solver: answer_record(answer) for solver, answer in answers.items()} for name, answers in results.items()
    }


def _row(spec: Spec, answers: dict[str, Measured | None]) -> list[str]:
    times_s = {solver: None if answer is None else answer.result.objective_s for solver, answer in answers.items()}
    best_s = min((seconds for seconds in times_s.values() if seconds is not None), default=None)
    milp = answers["milp"]
    assert milp is not None
    result = milp.result
    return [
        spec.name,
        str(spec.problem().cluster.num_devices),
        *(_ratio(times_s[solver], best_s) for solver in SOLVERS),
        "-" if best_s is None else format_seconds(best_s),
        "-" if result.bound_s is None else format_seconds(result.bound_s),
        percent(result.gap),
        whole_seconds(milp.seconds),
        f"{milp.peak_bytes / 2**30:.2f} GiB",
        f"{100 * spec.wanted_gap:g} %, {spec.time_limit_s:.0f} s",
        whole_seconds(seconds_to_gap(result, spec.wanted_gap)),
    ]


def _ratio(seconds: float | None, best_s: float | None) -> str:
    return "-" if seconds is None or best_s is None else f"{seconds / best_s:.4f}"


def _time_limit_s(spec: Spec, solver: str) -> float:
    return spec.time_limit_s - START_S if solver == "milp" else OTHERS_TIME_LIMIT_S


if __name__ == "__main__":
    main()
