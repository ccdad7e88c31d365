"""How well commands keep to their limits: seconds against `--time-limit`, peak memory against `--memory-limit`.

Options: `benchmarks/harness/driver.py`. A command is a process of its own and is measured as a whole, from its start to
its end. The problems are so large that no search ends by itself; it takes a machine with nothing else to do.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Tree
from benchmarks.problems.registry import LIMITS
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import BENCHMARKS_PAGE, markdown, times, whole_seconds
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.cluster import to_tree

TIME_LIMITS_S = (1.0, 3.0, 10.0)
MEMORY_LIMITS_MB = (250, 1000)
MEMORY_TIME_LIMIT_S = 10.0
"""Time limit of the commands whose memory is limited."""
SLACK_S, SLACK = 1.0, 1.02
"""Tolerance on the time limit: a factor, and seconds on top."""
SLACK_BYTES = 32e6
"""Bytes allowed above the memory limit: allocated between two checks, 5 ms apart on a quiet machine."""
ANSWERS = (0, 5)
"""Exit codes that pass: a plan, or no plan within the budget."""
MAXRSS_UNIT_BYTES = 1024
"""Unit of `ru_maxrss` on Linux."""
HEAD = ("problem, solver", "limit", "took", "of the limit", "plan")


def jobs(specs: Sequence[Spec], *, times_s: Sequence[float], memory_mb: Sequence[int]) -> Jobs:
    """Commands by problem, solver and limit."""
    found = {}
    for spec in specs:
        for solver in spec.solvers:
            for limit_s in times_s:
                found[f"{spec.name}, {solver}: {limit_s:g} s"] = partial(measure_time, spec, solver, limit_s)
            for limit_mb in memory_mb:
                found[f"{spec.name}, {solver}: {limit_mb} MB"] = partial(measure_memory, spec, solver, limit_mb)
    return found


def measure_time(spec: Spec, solver: str, limit_s: float, request: Request) -> Tree:
    """A command with a time limit only."""
    limit_s *= request.time_scale
    return {"limit_s": limit_s, **_measured(spec, solver, ["--time-limit", str(limit_s)])}


def measure_memory(spec: Spec, solver: str, limit_mb: int, request: Request) -> Tree:
    """A command with a memory limit, and enough time to reach it."""
    limit_s = MEMORY_TIME_LIMIT_S * request.time_scale
    limits = ["--time-limit", str(limit_s), "--memory-limit", f"{limit_mb}MB"]
    return {"limit_bytes": limit_mb * 1e6, **_measured(spec, solver, limits)}


def _measured(spec: Spec, solver: str, limits: Iterable[str]) -> Tree:
    """Exit code, iteration time, seconds and peak memory of `plan solve`."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.json"
        cluster.write_text(format_json(to_tree(spec.problem().cluster)), encoding="utf-8")
        inputs = ["--model", spec.model, "--cluster", str(cluster), "--global-batch", str(spec.global_batch)]
        choices = ["--solver", solver, *limits, "--quiet", "--json"]
        started = time.perf_counter()
        command = [sys.executable, "-m", "stagecut", "solve", *inputs, *choices]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        answer = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "exit_code": process.returncode,
        "objective_s": json.loads(answer)["objective_s"] if process.returncode in ANSWERS else None,
        "seconds": time.perf_counter() - started,
        "peak_bytes": used.ru_maxrss * MAXRSS_UNIT_BYTES,
    }


def tables(parts: Parts) -> Tables:
    """One row per command."""
    rows = [[*name.rsplit(": ", 1), *_cells(part)] for name, part in parts.items()]
    return {BENCHMARKS_PAGE: {"limits": markdown(HEAD, rows)}}


def _cells(part: Tree) -> list[str]:
    if "limit_s" in part:
        taken, share = whole_seconds(part["seconds"]), part["seconds"] / part["limit_s"]
    else:
        taken, share = f"{part['peak_bytes'] / 1e6:.0f} MB", part["peak_bytes"] / part["limit_bytes"]
    return [taken, times(share), whole_seconds(part["objective_s"])]


def complaint(parts: Parts) -> str:
    """Commands that failed or exceeded their limit."""
    return "\n".join(f"{name}: {fault}" for name, part in parts.items() if (fault := _fault(part)))


def _fault(part: Tree) -> str:
    if part["exit_code"] not in ANSWERS:
        return f"exit code {part['exit_code']}"
    if part["seconds"] > part.get("limit_s", math.inf) * SLACK + SLACK_S:
        return f"took {part['seconds']:.2f} s"
    if part["peak_bytes"] > part.get("limit_bytes", math.inf) + SLACK_BYTES:
        return f"held {part['peak_bytes'] / 1e6:.0f} MB"
    return ""


DRIVER = Driver(
    name="limits",
    jobs=jobs(LIMITS, times_s=TIME_LIMITS_S, memory_mb=MEMORY_LIMITS_MB),
    quick_jobs=jobs(
        [Spec(model="vgg16", cluster="cpu-2", global_batch=8, solvers=("milp",))], times_s=(60.0,), memory_mb=(1000,)
    ),
    tables=tables,
    complaint=complaint,
)

if __name__ == "__main__":
    DRIVER.main()
