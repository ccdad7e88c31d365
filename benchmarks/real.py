"""How accurate predictions from measured profiles are: two stages on two cores of this machine.

    python -m benchmarks.real [--docs]

Measures links and layers with `plan profile`, plans with `plan solve`, trains with `plan run`, and puts predicted
beside measured time. Contaminated runs (see :mod:`benchmarks.harness.plan_runs`) are tried again.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.plan_runs import LIMIT, ONE_PIPELINE, plan, profile_links, profile_model, run_plan
from benchmarks.report.pages import EXECUTOR_PAGE, markdown, put_tables
from benchmarks.report.results import keep_results

TRIES = 8
STEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One plan of a model for two devices."""

    model: str
    schedule: str
    micro_batch: int
    global_batch: int

    @property
    def name(self) -> str:
        """The name in files and tables."""
        return f"{self.model}, {self.schedule}, {self.global_batch // self.micro_batch} x {self.micro_batch}"


WORKLOADS = (
    Workload(model="gpt-mini", schedule="1f1b", micro_batch=2, global_batch=16),
    Workload(model="gpt-mini", schedule="gpipe", micro_batch=4, global_batch=16),
    Workload(model="vgg16", schedule="1f1b", micro_batch=1, global_batch=4),
    Workload(model="vgg16", schedule="gpipe", micro_batch=2, global_batch=4),
)


def profile(workload: Workload, path: Path) -> float:
    """Measure the model; return forward and backward seconds of its layers."""
    return sum(profile_model(path, workload.model, "--micro-batch", workload.micro_batch, "--repetitions", 8).values())


def solve(workload: Workload, folder: Path) -> Path:
    """A plan with one device per stage."""
    path = folder / f"{workload.name}.plan.json"
    plan(
        "solve",
        *("--model", folder / "before.json", "--cluster", folder / "cluster.json"),
        *(
            "--global-batch",
            workload.global_batch,
            "--micro-batch",
            workload.micro_batch,
            "--schedule",
            workload.schedule,
        ),
        *ONE_PIPELINE,
        *("-o", path, "--force", "--quiet"),
    )
    return path


def run(workload: Workload, folder: Path) -> list[dict[str, object]]:
    """The outcome of every attempt, up to the first that is not contaminated."""
    rows: list[dict[str, object]] = []
    for number in range(1, TRIES + 1):
        rows.append({"case": workload.name, "tries": number, **attempt(workload, folder)})
        print(rows[-1], file=sys.stderr)
        if not rows[-1]["contaminated"]:
            break
    return rows


def attempt(workload: Workload, folder: Path) -> dict[str, object]:
    """Profile, plan, run, profile again."""
    before_s = profile(workload, folder / "before.json")
    path = solve(workload, folder)
    figures = run_plan(path, num_steps=STEPS)
    drift = profile(workload, folder / "after.json") / before_s - 1
    return {
        "stages": len(json.loads(path.read_text(encoding="utf-8"))["plan"]["pipelines"][0]["stages"]),
        "predicted_s": figures.predicted_s,
        "measured_s": figures.measured_s,
        "error": figures.error,
        "drift": drift,
        "spread": figures.spread,
        "contaminated": figures.is_contaminated(drift),
        "clean_steps": figures.num_clean_steps,
    }


def table(rows: list[dict[str, object]]) -> str:
    """The table as Markdown."""
    head = (
        "plan",
        "stages",
        "predicted",
        "measured",
        "error",
        "clean steps",
        "spread",
        "profile after",
        "contaminated",
    )

    def cells(row: dict[str, object]) -> tuple[str, ...]:
        names = ("predicted_s", "measured_s", "error", "spread", "drift")
        predicted_s, measured_s, error, spread, drift = (float(str(row[name])) for name in names)
        return (
            str(row["case"]),
            str(row["stages"]),
            f"{1e3 * predicted_s:.0f} ms",
            f"{1e3 * measured_s:.0f} ms",
            f"{100 * error:+.2f} %",
            f"{row['clean_steps']} of {STEPS}",
            f"{100 * spread:.1f} %",
            f"{100 * drift:+.2f} %",
            f"{'yes' if row['contaminated'] else 'no'}, try {row['tries']}",
        )

    return markdown(head, [cells(row) for row in rows])


def main() -> int:
    """Measure, plan and run; return 0 if every run that passed the gate is within the limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--docs", action="store_true", help="write the table into docs/executor.md")
    parser.add_argument("--only", default="", metavar="TEXT", help="run only workloads whose name contains TEXT")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile_links(folder / "cluster.json")
        tries = [run(workload, folder) for workload in WORKLOADS if options.only in workload.name]
    rows = [own[-1] for own in tries]
    print(table(rows))
    if options.docs:
        keep_results("real", {"limit": LIMIT, "runs": rows, "tries": [row for own in tries for row in own]})
        put_tables(EXECUTOR_PAGE, {"real runs": table(rows)})
    clean = [abs(float(str(row["error"]))) for row in rows if not row["contaminated"]]
    return int(not clean or max(clean) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
