"""How well predictions from measured profiles hold: two stages on two cores of this machine.

    python -m benchmarks.real [--docs]

Measures links and layers with `plan profile`, plans with `plan solve`, trains with `plan run`, and
puts predicted beside measured time. Runs of which no step passes the contamination gate are tried
again, and said to be contaminated if that does not help.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pages import EXECUTOR_PAGE, keep_results, markdown, percent, put_tables

LIMIT = 0.08
"""Largest error that is accepted, of a run that passes the gate."""
TRIES = 4
STEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One plan of a model for two devices."""

    model: str
    schedule: str
    micro_batch: int
    global_batch: int

    @property
    def name(self) -> str:
        """For files and tables."""
        return f"{self.model}, {self.schedule}, {self.global_batch // self.micro_batch} x {self.micro_batch}"


MODELS = {"gpt-mini": (2, 4, 8), "vgg16-cifar": (4, 8, 16)}
"""With the micro-batch sizes that are measured."""
CASES = tuple(
    Case(model=model, schedule=schedule, micro_batch=size, global_batch=8 * sizes[1])
    for model, sizes in MODELS.items()
    for schedule, size in (("1f1b", sizes[1]), ("gpipe", sizes[1]), ("eager-1f1b", sizes[0]), ("1f1b", sizes[2]))
)


def plan(*arguments: object) -> dict[str, object]:
    """The answer of a command of the program."""
    command = [sys.executable, "-m", "planner.cli.main", *(str(argument) for argument in arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def measure(folder: Path) -> None:
    """Cluster and profiles of this machine, with both cores at work."""
    plan("profile", "links", "--processes", 2, "-o", folder / "cluster.json")
    for model, sizes in MODELS.items():
        micro_batches = ",".join(str(size) for size in sizes)
        options = ("--processes", 2, "--micro-batch", micro_batches, "-o", folder / f"{model}.json")
        plan("profile", "model", model, *options)


def solve(case: Case, folder: Path) -> Path:
    """A plan of one device for each stage."""
    path = folder / f"{case.name}.plan.json"
    plan(
        "solve",
        *("--model", folder / f"{case.model}.json", "--cluster", folder / "cluster.json"),
        *("--global-batch", case.global_batch, "--micro-batch", case.micro_batch, "--schedule", case.schedule),
        *("--replicas", 1, "--tensor-parallel", 1, "--pipelines", 1, "--recompute", "never"),
        *("-o", path, "--force", "--quiet"),
    )
    return path


def run(case: Case, folder: Path) -> dict[str, object]:
    """The record of the case's run, the last of several if all are contaminated."""
    path, record = solve(case, folder), folder / "run.json"
    answer: dict[str, object] = {}
    for tries in range(1, TRIES + 1):  # noqa: B007 kept for the record
        options = ("--steps", STEPS, "--warmup", 3, "--history", folder / "runs.jsonl", "-o", record, "--force")
        plan("run", path, *options, "--quiet")
        answer = json.loads(record.read_text(encoding="utf-8"))
        if not answer["contaminated"]:
            break
    steps = answer["steps"]
    assert isinstance(steps, list)
    predicted_s, measured_s = (float(str(answer[name])) for name in ("predicted_s", "measured_s"))
    return {
        "case": case.name,
        "stages": len(json.loads(path.read_text(encoding="utf-8"))["plan"]["pipelines"][0]["stages"]),
        "predicted_s": predicted_s,
        "measured_s": measured_s,
        "error": measured_s / predicted_s - 1,
        "contaminated": answer["contaminated"],
        "clean_steps": sum(step["clean"] for step in steps[-STEPS:]),
        "tries": tries,
    }


def table(rows: list[dict[str, object]]) -> str:
    """As Markdown."""
    head = ("plan", "stages", "predicted", "measured", "error", "clean steps", "contaminated")
    return markdown(
        head,
        [
            (
                str(row["case"]),
                str(row["stages"]),
                f"{1e3 * float(str(row['predicted_s'])):.1f} ms",
                f"{1e3 * float(str(row['measured_s'])):.1f} ms",
                percent(float(str(row["error"]))),
                f"{row['clean_steps']} of {STEPS}",
                "yes" if row["contaminated"] else "no",
            )
            for row in rows
        ],
    )


def main() -> int:
    """Measure, plan, run; 0 if every run that passed the gate is within the limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--docs", action="store_true", help="put the table into docs/executor.md")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(folder)
        rows = [run(case, folder) for case in CASES if options.only in case.name]
    print(table(rows))
    if options.docs:
        keep_results("real", {"limit": LIMIT, "runs": rows})
        put_tables(EXECUTOR_PAGE, {"real runs": table(rows)})
    clean = [abs(float(str(row["error"]))) for row in rows if not row["contaminated"]]
    return int(not clean or max(clean) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
