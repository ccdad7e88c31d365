"""How well predictions from measured profiles hold: two stages on two cores of this machine.

    python -m benchmarks.real [--docs]

Measures links with `plan profile links`, layers with `plan profile model`, plans with `plan solve`, trains with
`plan run`, and puts predicted beside measured time. Run queues do not tell when a shared machine is slower
as a whole, and it changes its speed within seconds. So short profiles and short runs take turns, and the lower
quartiles of either over all rounds, which neighbours disturb least, are compared. A case is contaminated if too
few rounds have a step that passes the gate of `plan run`, or if the errors of the even rounds and of the odd
ones are too far apart. Such cases are tried again.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.pages import EXECUTOR_PAGE, markdown, put_tables
from benchmarks.results import keep_results
from planner.core.model import ModelProfile
from planner.cost.cost_model import CostModel
from planner.io.plan_file import PlanFile, read_plan_file
from planner.io.profile import read_profile
from planner.simulator.engine import iteration_times

LIMIT = 0.08
"""Largest error that is accepted, of a case that passes the gate."""
APART = 0.05
"""Largest difference between the errors of even and of odd rounds, of a case that passes the gate."""
CLEAN_ROUNDS = 5
"""Fewest rounds with a clean step of a case that passes the gate."""
TRIES = 2
ROUNDS, STEPS, REPETITIONS = 6, 6, 3


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


CASES = (
    Case(model="gpt-mini", schedule="1f1b", micro_batch=2, global_batch=16),
    Case(model="gpt-mini", schedule="gpipe", micro_batch=4, global_batch=16),
    Case(model="vgg16-cifar", schedule="1f1b", micro_batch=4, global_batch=32),
    Case(model="vgg16-cifar", schedule="gpipe", micro_batch=8, global_batch=32),
)


def plan(*arguments: object) -> dict[str, object]:
    """The answer of a command of the program."""
    command = [sys.executable, "-m", "planner.cli.main", *(str(argument) for argument in arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def profile(case: Case, path: Path) -> ModelProfile:
    """Measure the model with both cores at work."""
    plan(
        *("profile", "model", case.model, "--processes", 2, "--micro-batch", case.micro_batch),
        *("--repetitions", REPETITIONS, "-o", path, "--force", "--quiet"),
    )
    return read_profile(path)


def solve(case: Case, folder: Path) -> Path:
    """A plan of one device for each stage."""
    path = folder / f"{case.name}.plan.json"
    plan(
        "solve",
        *("--model", folder / "profile.json", "--cluster", folder / "cluster.json"),
        *("--global-batch", case.global_batch, "--micro-batch", case.micro_batch, "--schedule", case.schedule),
        *("--replicas", 1, "--tensor-parallel", 1, "--pipelines", 1, "--recompute", "never"),
        *("-o", path, "--force", "--quiet"),
    )
    return path


def run(case: Case, folder: Path) -> list[dict[str, object]]:
    """What came of every try at the case, until one is not contaminated."""
    rows: list[dict[str, object]] = []
    for number in range(1, TRIES + 1):
        rows.append({"case": case.name, "tries": number, **attempt(case, folder)})
        print(rows[-1], file=sys.stderr)
        if not rows[-1]["contaminated"]:
            break
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A profile, and the steps that were trained next."""

    predicted_s: float
    """Simulated with the profile."""
    clean_s: tuple[float, ...]
    """Seconds of the steps that pass the gate of `plan run`."""


def attempt(case: Case, folder: Path) -> dict[str, object]:
    """Plan once, then measure and train in turn."""
    profile(case, folder / "profile.json")
    path = solve(case, folder)
    planned = read_plan_file(path)
    rounds = [measured_round(case, planned, path, folder) for _ in range(ROUNDS)]
    return {"stages": len(planned.plan.stages), **comparison(rounds)}


def measured_round(case: Case, planned: PlanFile, path: Path, folder: Path) -> Round:
    """Measure the layers, then train."""
    problem = replace(planned.problem, model=profile(case, folder / "profile.json"))
    predicted_s = float(iteration_times([CostModel(problem).plan(planned.plan)])[0])
    return Round(predicted_s=predicted_s, clean_s=train(path, folder))


def train(path: Path, folder: Path) -> tuple[float, ...]:
    """Train by a plan; seconds of the clean steps."""
    record = folder / "run.json"
    options = ("--steps", STEPS, "--warmup", 2, "--history", folder / "runs.jsonl", "-o", record, "--force")
    plan("run", path, *options, "--quiet")
    found = json.loads(record.read_text(encoding="utf-8"))["steps"][-STEPS:]
    return tuple(step["seconds"] for step in found if step["clean"])


def comparison(rounds: Sequence[Round]) -> dict[str, object]:
    """Predicted beside measured, in all rounds, in the even ones, and in the odd ones."""
    even, odd = error(rounds[::2]), error(rounds[1::2])
    clean_rounds = sum(bool(own.clean_s) for own in rounds)
    return {
        "predicted_s": predicted(rounds),
        "measured_s": measured(rounds),
        "error": error(rounds),
        "error_even": even,
        "error_odd": odd,
        "contaminated": clean_rounds < CLEAN_ROUNDS or not abs(even - odd) <= APART,
        "clean_steps": sum(len(own.clean_s) for own in rounds),
    }


def error(rounds: Sequence[Round]) -> float:
    """Relative, of the predicted time."""
    return measured(rounds) / predicted(rounds) - 1


def predicted(rounds: Sequence[Round]) -> float:
    """Lower quartile of the simulated seconds."""
    return lower_quartile([own.predicted_s for own in rounds])


def measured(rounds: Sequence[Round]) -> float:
    """Lower quartile of the medians of the rounds."""
    return lower_quartile([statistics.median(own.clean_s) for own in rounds if own.clean_s])


def lower_quartile(seconds: Sequence[float]) -> float:
    """No number where there are fewer than two."""
    return statistics.quantiles(seconds, method="inclusive")[0] if len(seconds) > 1 else float("nan")


def table(rows: list[dict[str, object]]) -> str:
    """As Markdown."""
    head = (
        "plan",
        "stages",
        "predicted",
        "measured",
        "error",
        "even rounds",
        "odd rounds",
        "clean steps",
        "contaminated",
    )

    def cells(row: dict[str, object]) -> tuple[str, ...]:
        predicted_s, measured_s = (float(str(row[name])) for name in ("predicted_s", "measured_s"))
        return (
            str(row["case"]),
            str(row["stages"]),
            f"{1e3 * predicted_s:.0f} ms",
            f"{1e3 * measured_s:.0f} ms",
            *(f"{100 * float(str(row[name])):+.2f} %" for name in ("error", "error_even", "error_odd")),
            f"{row['clean_steps']} of {ROUNDS * STEPS}",
            f"{'yes' if row['contaminated'] else 'no'}, try {row['tries']}",
        )

    return markdown(head, [cells(row) for row in rows])


def main() -> int:
    """Measure, plan, run; 0 if every run that passed the gate is within the limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--docs", action="store_true", help="put the table into docs/executor.md")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan("profile", "links", "--processes", 2, "-o", folder / "cluster.json", "--quiet")
        tries = [run(case, folder) for case in CASES if options.only in case.name]
    rows = [own[-1] for own in tries]
    print(table(rows))
    if options.docs:
        keep_results("real", {"limit": LIMIT, "runs": rows, "tries": [row for own in tries for row in own]})
        put_tables(EXECUTOR_PAGE, {"real runs": table(rows)})
    clean = [abs(float(str(row["error"]))) for row in rows if not row["contaminated"]]
    return int(not clean or max(clean) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
