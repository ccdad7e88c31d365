"""One search, best in a process of its own: its result, and what it took."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from benchmarks.specs import Spec
from planner.core.errors import UnsupportedError
from planner.core.result import HistoryPoint, Result, relative_gap
from planner.solvers.options import SolveOptions
from planner.solvers.registry import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A result with its price."""

    result: Result
    seconds: float
    """Of all there was to do, the start of the process included where it has one of its own."""
    peak_bytes: float
    """Largest resident memory of the process."""


Measure = Callable[[Spec, str, SolveOptions], Measured | None]
"""Runs a named solver; None if it cannot express the problem."""


def measured_here(spec: Spec, solver: str, options: SolveOptions) -> Measured | None:
    """Run a solver in this process."""
    started = time.perf_counter()
    try:
        result = run(spec.problem(), solver, options)
    except UnsupportedError:
        return None
    peak_bytes = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Measured(result=result, seconds=time.perf_counter() - started, peak_bytes=peak_bytes)


def measured(spec: Spec, solver: str, options: SolveOptions) -> Measured | None:
    """Run a solver with nothing else in its process, whose start counts too."""
    started = time.perf_counter()
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        answer = pool.submit(measured_here, spec, solver, options).result()
    return None if answer is None else replace(answer, seconds=time.perf_counter() - started)


def seconds_to_gap(result: Result, gap: float) -> float | None:
    """When the search had proven that gap; None if it never did."""
    return next((point.seconds for point in result.history if _is_within(point, gap)), None)


def answer_record(answer: Measured | None) -> dict[str, object] | None:
    """What is kept of one search."""
    if answer is None:
        return None
    result = answer.result
    return {
        "status": str(result.status),
        "objective_s": result.objective_s,
        "bound_s": result.bound_s,
        "row_bound_s": result.row_bound_s,
        "gap": result.gap,
        "seconds": round(answer.seconds, 2),
        "peak_bytes": answer.peak_bytes,
        "counts": dict(result.counts),
        "step_seconds": {name: round(seconds, 3) for name, seconds in result.step_seconds},
    }


def _is_within(point: HistoryPoint, gap: float) -> bool:
    reached = relative_gap(point.objective_s, point.bound_s)
    return reached is not None and reached <= gap * (1 + 1e-6)
