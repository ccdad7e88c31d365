"""Predictions on one GPU: measured profiles for the catalogue, and pipelines of several stages against the simulator.

    python -m benchmarks.gpu                        gpt2-345m and bert-large in bf16, under eight minutes
    python -m benchmarks.gpu --quick                fewer sizes, stages and repetitions
    python -m benchmarks.gpu --device cpu --quick --models gpt-mini --output FOLDER      the same on the processor

Writes `models/measured/MODEL@DEVICE.json`, which the catalogue then has, and `benchmarks/results/gpu-DEVICE.json`.
How pipelines are predicted: see :mod:`benchmarks.gpu.stages`.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch

from benchmarks.gpu.layers import Effort, Profiled, Subject, free_memory, held_bytes, profile_layers
from benchmarks.gpu.stages import PipelineRun, lanes_on, run_pipeline
from benchmarks.report.pages import ROOT, markdown, percent
from benchmarks.report.results import keep_results
from stagecut.executor.machine.devices import device_memory_bytes, device_title, device_type_name, slug
from stagecut.models.clusters.device_types import DEVICE_TYPES
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.profile import to_tree

MODELS = ("gpt2-345m", "bert-large")
BAD_INPUT = 3
"""Exit code for bad input, the same as that of `plan`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What to measure."""

    sizes: tuple[int, ...]
    """Micro-batch sizes to profile, in samples."""
    run_sizes: tuple[int, ...]
    """Micro-batch sizes for pipelines, in samples; the largest that fits is used."""
    num_stages: tuple[int, ...]
    effort: Effort
    sequence_length: int | None = None
    """Tokens per sample; None: the model's default."""


FULL = Scope(sizes=(1, 2, 4, 8, 16), run_sizes=(1, 2, 4), num_stages=(2, 4), effort=Effort(repetitions=6, warmup=3))
QUICK = Scope(sizes=(1, 2), run_sizes=(1,), num_stages=(2,), effort=Effort(repetitions=1, warmup=1), sequence_length=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Everything measured about one model."""

    profiled: Profiled
    runs: tuple[PipelineRun, ...]
    seconds: float
    """How long measuring took."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure everything, print tables and keep results; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("benchmarks.gpu: needs a CUDA device, but torch finds none; try --device cpu --quick", file=sys.stderr)
        return BAD_INPUT
    device = torch.device("cpu") if options.device == "cpu" else torch.device("cuda", torch.cuda.current_device())
    scope = QUICK if options.quick else FULL
    precision = Precision.FP32 if options.device == "cpu" else Precision.BF16
    findings, folder = {}, options.output / "benchmarks" / "results"
    try:
        for name in options.models:
            findings[name] = measure(name, scope, precision=precision, device=device, output=options.output)
            keep_results(f"gpu-{catalogue_type(device)}", record(findings, device), folder=folder)
            print(
                f"{name}\n\n{layers_table(findings[name].profiled)}\n\n{runs_table(findings[name].runs)}\n", flush=True
            )
    except BadInputError as fault:
        print(f"benchmarks.gpu: {fault}", file=sys.stderr)
        return BAD_INPUT
    return 0


def measure(name: str, scope: Scope, *, precision: Precision, device: torch.device, output: Path) -> Finding:
    """Measure one model: its layers on the whole device, whose profile is written at once, then its pipelines."""
    started = time.monotonic()

    def told(what: str) -> None:
        print(f"{name}: {time.monotonic() - started:.0f} s, {what}", file=sys.stderr, flush=True)

    told("measuring layers ...")
    subject = Subject.of(
        name,
        precision=precision,
        device=device,
        device_type=catalogue_type(device),
        sequence_length=scope.sequence_length,
    )
    profiled = profile_layers(subject, scope.sizes, scope.effort)
    keep_profile(profiled, output / "models" / "measured")
    free_memory()
    size = run_size(subject, scope)
    runs = []
    for num_stages in scope.num_stages:
        ways, missing = lanes_on(device, num_stages)
        if missing is not None:
            print(f"no green contexts, only equal streams: {missing}", file=sys.stderr)
        for lanes in ways:
            runs.append(
                run_pipeline(subject, profiled, lanes, num_stages=num_stages, micro_batch=size, effort=scope.effort)
            )
            told(_line(runs[-1]))
    return Finding(profiled=profiled, runs=tuple(runs), seconds=time.monotonic() - started)


def run_size(subject: Subject, scope: Scope) -> int:
    """The largest micro-batch that fits in every pipeline: under 1F1B, equal stages hold (S + 1) / 2 on average."""
    held = max(scope.effort.in_flight, *((stages + 1) / 2 for stages in scope.num_stages))

    def needed_bytes(size: int) -> float:
        return sum(held_bytes(layer, samples=round(held * size)) for layer in subject.facts.layers)

    fitting = [size for size in scope.run_sizes if needed_bytes(size) <= subject.budget_bytes]
    return max(fitting, default=scope.run_sizes[0])


def catalogue_type(device: torch.device) -> str:
    """The device's name in the catalogue, or its own if the catalogue does not have it.

    "NVIDIA H100 80GB HBM3" has all the words of `h100-80`.
    """
    own = device_type_name(device, torch.get_num_threads())
    words = {word.removesuffix("gb") for word in own.split("-")}
    known = [kind.name for kind in DEVICE_TYPES if set(kind.name.split("-")) <= words]
    return max(known, key=len, default=own)


def keep_profile(profiled: Profiled, folder: Path) -> None:
    """Write a profile to where the catalogue finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = format_json(to_tree(profiled.profile))
    (folder / f"{profiled.profile.name}.json").write_text(text, encoding="utf-8")


def layers_table(profiled: Profiled) -> str:
    """Milliseconds per forward and backward: medians over the layers of each kind."""
    profile = profiled.profile
    sizes = sorted({size for layer in profile.layers for table in layer.times for size in table.samples})
    rows = []
    for kind in dict.fromkeys(layer.kind for layer in profile.layers):
        tables = [table for layer in profile.layers if layer.kind == kind for table in layer.times]
        for passed in ("forward", "backward"):
            found = [dict(zip(table.samples, getattr(table, f"{passed}_s"), strict=True)) for table in tables]
            cells = [[times[size] for times in found if size in times] for size in sizes]
            rows.append([f"{kind}, {passed} (ms)", *(f"{1e3 * median(cell):.3f}" if cell else "-" for cell in cells)])
    return markdown(["layers, micro-batch of", *map(str, sizes)], rows)


def runs_table(runs: Sequence[PipelineRun]) -> str:
    """Predicted beside measured times."""
    head = [
        "stages on",
        "stages",
        "multiprocessors",
        "slower by",
        "micro-batches",
        "predicted",
        "measured",
        "error",
        "",
    ]
    return markdown(head, [_row(run) for run in runs])


def _row(run: PipelineRun) -> list[str]:
    return [
        str(run.sharing),
        str(len(run.stages)),
        "-" if run.num_multiprocessors is None else str(run.num_multiprocessors),
        f"{run.slowdown:.2f}x",
        f"{run.num_microbatches} x {run.micro_batch}",
        f"{1e3 * run.predicted_s:.1f} ms",
        f"{1e3 * run.measured_s:.1f} ms",
        percent(run.error),
        "contaminated" if run.contaminated else "",
    ]


def _line(run: PipelineRun) -> str:
    return (
        f"{len(run.stages)} stages on {run.sharing}: predicted {1e3 * run.predicted_s:.1f} ms, "
        f"measured {1e3 * run.measured_s:.1f} ms"
    )


def record(findings: dict[str, Finding], device: torch.device) -> dict[str, object]:
    """The results to keep."""
    return {
        "device": device_record(device),
        "torch": torch.__version__,
        "models": {
            name: {
                "profile": to_tree(finding.profiled.profile),
                "update_s_per_parameter": finding.profiled.update_s,
                "contaminated": finding.profiled.contaminated,
                "runs": [{**asdict(run), "error": run.error} for run in finding.runs],
                "seconds": round(finding.seconds, 1),
            }
            for name, finding in findings.items()
        },
    }


def device_record(device: torch.device) -> dict[str, object]:
    """The device and its driver."""
    found: dict[str, object] = {
        "name": device_title(device, torch.get_num_threads()),
        "device_type": catalogue_type(device),
        "memory_bytes": device_memory_bytes(device, sharing=1),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "slug": slug(properties.name),
            "capability": [properties.major, properties.minor],
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "driver": driver_version(),
        }
    return found


def driver_version() -> str:
    """A property of the device, as reported by nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown"
    query = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return answer[0] if answer else "unknown"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="NAME", help="catalogue models to measure")
    parser.add_argument("--quick", action="store_true", help="measure fewer sizes, stages and repetitions")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT,
        metavar="FOLDER",
        help="where to write (default: the root of the repository)",
    )
    return parser
