"""Quality of plans: simulated time of every solver, bound, gap.

    python -m benchmarks.quality                      prints the table and writes results/quality.json
    python -m benchmarks.quality --readme             also puts the table into README.md

Every solver gets the same time limit on the same machine in one run. Times of iterations are
simulated and reproducible; search seconds depend on the machine, and so do the plans and bounds of
a search that its time limit ends.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.specs import QUALITY, Spec
from planner.core.result import Result
from planner.core.units import format_seconds
from planner.io.plan_file import installed_versions
from planner.solvers.options import SolveOptions
from planner.solvers.registry import run

SOLVERS = ("even", "greedy", "dp", "milp")
TIME_LIMIT_S = 60.0
ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "quality.json"
BEGIN, END = "<!-- quality table: begin -->", "<!-- quality table: end -->"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all specs, print the table, keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    chosen = parser.parse_args(arguments)
    results = {spec.name: measure(spec) for spec in QUALITY}
    table = markdown(QUALITY, results)
    print(table)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(record(results), indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if chosen.readme:
        readme = ROOT / "README.md"
        readme.write_text(with_table(readme.read_text(encoding="utf-8"), table), encoding="utf-8")


def measure(spec: Spec, *, time_limit_s: float = TIME_LIMIT_S) -> dict[str, Result]:
    """The result of every solver on one spec."""
    problem = spec.problem()
    return {solver: run(problem, solver, SolveOptions(time_limit_s=time_limit_s)) for solver in SOLVERS}


def markdown(specs: Sequence[Spec], results: dict[str, dict[str, Result]]) -> str:
    """One row per spec; times relative to the fastest plan, its time in full."""
    head = "| problem | devices | even | greedy | dp | milp | best time | bound | gap | search |"
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for spec in specs:
        by_solver = results[spec.name]
        best_s = min(result.objective_s for result in by_solver.values() if result.objective_s is not None)
        ratios = [_ratio(by_solver[solver], best_s) for solver in SOLVERS]
        milp = by_solver["milp"]
        cells = [
            spec.name,
            str(spec.problem().cluster.num_devices),
            *ratios,
            format_seconds(best_s),
            "-" if milp.bound_s is None else format_seconds(milp.bound_s),
            "-" if milp.gap is None else f"{100 * milp.gap:.2f} %",
            f"{milp.seconds:.0f} s",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def record(results: dict[str, dict[str, Result]]) -> dict[str, object]:
    """What is kept of a run."""
    return {
        "versions": installed_versions(),
        "time_limit_s": TIME_LIMIT_S,
        "results": {
            name: {
                solver: {
                    "status": result.status,
                    "objective_s": result.objective_s,
                    "bound_s": result.bound_s,
                    "gap": result.gap,
                    "seconds": round(result.seconds, 2),
                    "counts": dict(result.counts),
                }
                for solver, result in by_solver.items()
            }
            for name, by_solver in results.items()
        },
    }


def with_table(text: str, table: str) -> str:
    """The page with the table between its markers."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _ratio(result: Result, best_s: float) -> str:
    return "-" if result.objective_s is None else f"{result.objective_s / best_s:.4f}"


if __name__ == "__main__":
    main()
