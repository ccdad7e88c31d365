"""Plans that are run on this machine: answers of the command, profiles, and whether a run counts.

Run queues do not tell when a shared machine is slower as a whole, so layers are measured again after a run. A run is
contaminated if too few of its steps pass the gate of `plan run`, if its steps differ too much among themselves, or if
the profiles before and after it do.
"""

import json
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.measuring import Tree

LIMIT = 0.08
"""Largest error accepted for a run that is not contaminated."""
DRIFT = 0.03
"""Largest difference between the profiles before and after a run that is not contaminated."""
SPREAD = 0.05
"""Largest distance between the quartiles of its steps, relative to their median."""
CLEAN_STEPS = 3
"""Fewest clean steps."""
STAGE_TIMES = ("forward_s", "backward_s", "update_s")
PROFILING = ("--processes", 2)
"""Both cores of this machine are busy, as in training."""
ONE_PIPELINE = ("--replicas", 1, "--tensor-parallel", 1, "--pipelines", 1, "--recompute", "never")
"""Options of `plan solve`: one device per stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What one `plan run` predicted and measured."""

    predicted_s: float
    measured_s: float
    spread: float
    """Distance between the quartiles of the steps, relative to their median."""
    num_clean_steps: int
    gradient_difference: float | None = None
    """Largest difference from a single process, with `--check`."""
    stages: tuple[Tree, ...] = ()
    """Predicted and measured seconds of forwards, backwards and update of each stage."""

    @property
    def error(self) -> float:
        """Error of the prediction."""
        return self.measured_s / self.predicted_s - 1

    def is_contaminated(self, drift: float) -> bool:
        """Whether the times mean little, given how much the profile has changed."""
        return self.num_clean_steps < CLEAN_STEPS or self.spread > SPREAD or abs(drift) > DRIFT


def plan(*arguments: object) -> Tree:
    """The JSON answer of a `plan` command."""
    command = [sys.executable, "-m", "stagecut", *(str(argument) for argument in arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    answer: Tree = json.loads(done.stdout)
    return answer


def profile_links(path: Path) -> None:
    """Measure this machine as a cluster of two devices."""
    plan("profile", "links", *PROFILING, "-o", path, "--force", "--quiet")


def profile_model(path: Path, *model: object) -> dict[int, float]:
    """Measure a model with both cores busy; forward and backward seconds of all its layers, by micro-batch size.

    Parameters
    ----------
    model
        Arguments of `plan profile model`.
    """
    plan("profile", "model", *model, *PROFILING, "-o", path, "--force", "--quiet")
    return layers_s(json.loads(path.read_text(encoding="utf-8")))


def layers_s(profile: Tree) -> dict[int, float]:
    """Forward and backward seconds of all layers of a measured profile, by micro-batch size."""
    total_s: dict[int, float] = defaultdict(float)
    directions = (layer[name] for layer in profile["layers"] for name in ("forward_s", "backward_s"))
    for size, seconds in (item for by_type in directions for times in by_type.values() for item in times.items()):
        total_s[int(size)] += seconds
    return dict(total_s)


def run_plan(path: Path, *options: object, num_steps: int, warmup: int = 2) -> RunFigures:
    """Run a plan; the record of the run lies beside it."""
    record = path.with_suffix(".run.json")
    counts = ("--steps", num_steps, "--warmup", warmup)
    plan("run", path, *counts, *options, "--history", path.parent / "runs.jsonl", "-o", record, "--force", "--quiet")
    return figures_of(json.loads(record.read_text(encoding="utf-8")))


def figures_of(record: Tree) -> RunFigures:
    """The figures of a run's record."""
    steps, check = record["steps"][record["warmup"] :], record.get("check")
    seconds = [step["seconds"] for step in steps]
    low_s, median_s, high_s = statistics.quantiles(seconds) if len(seconds) > 1 else seconds * 3
    return RunFigures(
        predicted_s=record["predicted_s"],
        measured_s=record["measured_s"],
        spread=(high_s - low_s) / median_s,
        num_clean_steps=sum(step["clean"] for step in steps),
        gradient_difference=check["largest_gradient_difference"] if check else None,
        stages=tuple(
            {side: {name: stage[side][name] for name in STAGE_TIMES} for side in ("predicted", "measured")}
            for stage in record["stages"]
        ),
    )
