"""Equal and unequal micro-batches on this machine: profiles, plans, real and dilated runs, gradients.

    python -m benchmarks.unequal_runs

with the options of `benchmarks/harness/driver.py`; `--docs` puts the tables into docs/papers/umpipe.md. `plan profile`
measures layers at every size and links on two cores; profiles are kept in benchmarks/profiles. `plan solve` finds the
best equal and the best unequal sizes under a flush, for these two cores and, with VGG16, for eight devices like them.
`plan run` trains the plans for two cores, plays all of them in dilated mode, and compares a step of each with a single
process in float64; eight processes that do so with GPT1-14 take some 15 GB. Contaminated real runs (see
:mod:`benchmarks.harness.plan_runs`) are tried again, both plans together.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from benchmarks.harness.driver import Driver, Jobs, Request
from benchmarks.harness.measuring import Tree
from benchmarks.harness.plan_runs import ONE_PIPELINE, layers_s, plan, profile_links, profile_model, run_plan
from benchmarks.report.pages import ROOT
from benchmarks.unequal_runs.tables import EQUAL, SIZES, UNEQUAL, complaint, tables
from stagecut.planner.io.documents.canonical import format_json

PROFILES = ROOT / "benchmarks" / "profiles"
MEASURED, WIDE = 2, 8
"""Devices: as many as there are cores, and more of the same."""
GAP = 1e-6
DILATED = ("--mode", "dilated", "--time-scale", 4, "--check")
"""Four times as slow as planned, so that other programs on the machine matter little."""
PATIENCE_S = 900
"""How long a rank waits while another one computes the whole batch by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model to train, and the effort to measure it."""

    name: str
    model: tuple[str, ...]
    """Arguments that name the model for `plan profile model`."""
    layers: tuple[str, ...] = ()
    """Arguments with which `plan run` finds the layers, for models outside the catalogue."""
    num_devices: tuple[int, ...] = (MEASURED,)
    """Devices of the plans."""
    sizes: tuple[int, ...] = SIZES
    global_batch: int = 32
    repetitions: int = 3
    num_steps: int = 6
    num_tries: int = 3


SMALL_VGG = ("--layers", "benchmarks.problems.small_vgg:vgg16")
WORKLOADS = (
    Workload(name="gpt1-14", model=("gpt1-14", "--sequence-length", "16")),
    Workload(name="vgg16", model=SMALL_VGG, layers=SMALL_VGG, num_devices=(MEASURED, WIDE)),
)
QUICK = Workload(
    name="gpt-mini",
    model=("gpt-mini", "--sequence-length", "16"),
    sizes=(1, 2),
    global_batch=4,
    repetitions=1,
    num_steps=2,
    num_tries=1,
)


def jobs(workloads: Sequence[Workload], folder: Path) -> Jobs:
    """The profile of each model, and its plans for two and for more devices."""
    found = {}
    for workload in workloads:
        own = Measurement(workload=workload, profile=folder / f"{workload.name}.profile.json")
        found[f"{workload.name}, profile"] = own.measure_profile
        for num_devices in workload.num_devices:
            found[f"{workload.name}, {num_devices} devices"] = partial(own.measure_plans, num_devices)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What is measured about one model, and where its profile lies."""

    workload: Workload
    profile: Path

    @property
    def cluster(self) -> Path:
        """The cluster measured together with the profile."""
        return self.profile.with_suffix("").with_suffix(".cluster.json")

    def measure_profile(self, _: Request) -> Tree:
        """Links, and layers at every size; seconds of all layers together, by size."""
        self.profile.parent.mkdir(exist_ok=True)
        profile_links(self.cluster)
        return {str(size): seconds for size, seconds in self.layers_s(self.profile, self.workload.sizes).items()}

    def layers_s(self, path: Path, sizes: Sequence[int]) -> dict[int, float]:
        """Measure the layers into a file."""
        effort = ("--micro-batch", ",".join(map(str, sizes)), "--repetitions", self.workload.repetitions)
        return profile_model(path, *self.workload.model, *effort)

    def measure_plans(self, num_devices: int, _: Request) -> Tree:
        """The best plans, and how they run; a single one if no unequal sizes are better than equal ones."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cluster = widened(json.loads(self.cluster.read_text(encoding="utf-8")), num_devices)
            (folder / "cluster.json").write_text(format_json(cluster), encoding="utf-8")
            plans = {kind: self.solve(folder, kind) for kind in (EQUAL, UNEQUAL)}
            if all(plans[UNEQUAL][key] == plans[EQUAL][key] for key in ("cuts", "sizes")):
                del plans[UNEQUAL]
            paths = {kind: folder / f"{kind}.plan.json" for kind in plans}
            tries = self.real_runs(paths) if num_devices == MEASURED else []
            for kind, path in paths.items():
                plans[kind] |= {
                    "real": tries[-1][kind] if tries else None,
                    "dilated": asdict(run_plan(path, *DILATED, num_steps=3, warmup=1)),
                    "gradient_difference": self.gradient_difference(path),
                }
        return {"plans": plans, "tries": tries}

    def solve(self, folder: Path, kind: str) -> Tree:
        """The best plan with one device per stage under a flush."""
        sizes = ",".join(map(str, self.workload.sizes))
        path = folder / f"{kind}.plan.json"
        plan(
            *("solve", "--model", self.profile, "--cluster", folder / "cluster.json"),
            *("--global-batch", self.workload.global_batch, "--schedule", "gpipe", "--gap", GAP),
            *("--micro-batch", sizes if kind == EQUAL else f"unequal:{sizes}"),
            *(*ONE_PIPELINE, "-o", path, "--quiet"),
        )
        found = json.loads(path.read_text(encoding="utf-8"))
        (pipeline,) = found["plan"]["pipelines"]
        return {
            "predicted_s": found["predicted"]["iteration_s"],
            "gap": found["certificate"]["gap"],
            "cuts": [stage["start"] for stage in pipeline["stages"][1:]],
            "sizes": sizes_label(pipeline["stages"]),
            "stages": [{"forward": stage["forward_micro_batch"]} for stage in pipeline["stages"]],
        }

    def real_runs(self, paths: Mapping[str, Path]) -> list[Tree]:
        """Runs of the plans, tried again until none is contaminated; the last ones count.

        After each try the layers are measured again, at a size in the middle.
        """
        size = self.workload.sizes[len(self.workload.sizes) // 2]
        before_s = layers_s(json.loads(self.profile.read_text(encoding="utf-8")))[size]
        tries: list[Tree] = []
        while len(tries) < self.workload.num_tries and (not tries or tries[-1]["contaminated"]):
            options, num_steps = self.workload.layers, self.workload.num_steps
            found = {kind: run_plan(path, *options, num_steps=num_steps) for kind, path in paths.items()}
            drift = self.layers_s(paths[EQUAL].with_name("after.json"), (size,))[size] / before_s - 1
            contaminated = any(figures.is_contaminated(drift) for figures in found.values())
            rows = {kind: asdict(figures) for kind, figures in found.items()}
            tries.append({"drift": drift, "contaminated": contaminated, **rows})
            print(tries[-1], file=sys.stderr, flush=True)
        return tries

    def gradient_difference(self, path: Path) -> float | None:
        """The largest difference from a single process, of one step of the model itself."""
        options = (*self.workload.layers, "--check", "--timeout", PATIENCE_S)
        return run_plan(path, *options, num_steps=1, warmup=0).gradient_difference


def widened(cluster: Tree, num_devices: int) -> Tree:
    """The measured cluster with so many of its devices, each pair linked like those that were measured."""
    (server,) = cluster["servers"]
    (island,) = server["islands"]
    return {**cluster, "servers": [{**server, "islands": [{**island, "count": num_devices}]}]}


def sizes_label(stages: Sequence[Tree]) -> str:
    """One size if all are equal; else those along forwards and backwards, `F 4 (2) 8, B 8 4`, messages in brackets."""
    forwards = [(stage["forward_micro_batch"], stage.get("forward_message")) for stage in stages]
    backwards = [(stage["backward_micro_batch"], stage.get("backward_message")) for stage in reversed(stages)]
    (size, message), *others = {*forwards, *backwards}
    if not others and message is None:
        return str(size)
    return ", ".join(f"{name} {_line(line)}" for name, line in (("F", forwards), ("B", backwards)))


def _line(line: Sequence[tuple[int, int | None]]) -> str:
    """A computation and the message that it sends, in turn; the last one sends none."""
    names = chain.from_iterable((str(size), "" if message is None else f"({message})") for size, message in line)
    return " ".join(name for name in names if name)


DRIVER = Driver(
    name="unequal_runs",
    jobs=jobs(WORKLOADS, PROFILES),
    quick_jobs=jobs((QUICK,), Path(tempfile.gettempdir()) / "unequal-runs"),
    tables=tables,
    complaint=complaint,
)
