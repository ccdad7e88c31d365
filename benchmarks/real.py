"""How accurate predictions from measured profiles are: two stages on two cores of this machine.

    python -m benchmarks.real [--docs]

Measures links and layers with `plan profile`, plans with `plan solve`, trains with `plan run`, and
puts predicted beside measured time. Run queues do not tell when a shared machine is slower as a
whole, so the layers are measured again after each run. A run is contaminated if too few of its steps pass
the gate of `plan run`, if its steps differ too much among themselves, or if the two profiles around it
do. Such runs are tried again.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report.pages import EXECUTOR_PAGE, markdown, put_tables
from benchmarks.report.results import keep_results

LIMIT = 0.08
"""Largest error accepted for a run that passes the gate."""
DRIFT = 0.03
"""Largest difference between the profiles before and after a run that passes the gate."""
SPREAD = 0.05
"""Largest distance between the quartiles of the steps, relative to their median, of a run that passes the gate."""
CLEAN_STEPS = 3
"""Fewest clean steps of a run that passes the gate."""
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


def plan(*arguments: object) -> dict[str, object]:
    """The JSON answer of a `plan` command."""
    command = [sys.executable, "-m", "stagecut", *(str(argument) for argument in arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def profile(workload: Workload, path: Path) -> float:
    """Measure the model with both cores busy; return forward and backward seconds of its layers."""
    plan(
        *("profile", "model", workload.model, "--processes", 2, "--micro-batch", workload.micro_batch),
        *("--repetitions", 8),
        *("-o", path, "--force", "--quiet"),
    )
    layers = json.loads(path.read_text(encoding="utf-8"))["layers"]
    directions = (layer[name] for layer in layers for name in ("forward_s", "backward_s"))
    return sum(seconds for by_type in directions for by_size in by_type.values() for seconds in by_size.values())


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
        *("--replicas", 1, "--tensor-parallel", 1, "--pipelines", 1, "--recompute", "never"),
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
    path, record = solve(workload, folder), folder / "run.json"
    options = ("--steps", STEPS, "--warmup", 2, "--history", folder / "runs.jsonl", "-o", record, "--force")
    plan("run", path, *options, "--quiet")
    drift = profile(workload, folder / "after.json") / before_s - 1
    answer = json.loads(record.read_text(encoding="utf-8"))
    steps = answer["steps"][-STEPS:]
    clean_steps = sum(step["clean"] for step in steps)
    quartiles_s = statistics.quantiles([step["seconds"] for step in steps])
    spread = (quartiles_s[2] - quartiles_s[0]) / quartiles_s[1]
    return {
        "stages": len(json.loads(path.read_text(encoding="utf-8"))["plan"]["pipelines"][0]["stages"]),
        "predicted_s": answer["predicted_s"],
        "measured_s": answer["measured_s"],
        "error": answer["measured_s"] / answer["predicted_s"] - 1,
        "drift": drift,
        "spread": spread,
        "contaminated": clean_steps < CLEAN_STEPS or spread > SPREAD or abs(drift) > DRIFT,
        "clean_steps": clean_steps,
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
        plan("profile", "links", "--processes", 2, "-o", folder / "cluster.json", "--quiet")
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
