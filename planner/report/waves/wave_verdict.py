"""The answer about virtual workers in one sentence, and their rates in words."""

import math

from stagecut.planner.core.result import Status
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.cost.time_basis import TimeBasis
from stagecut.planner.report.labels import UNKNOWN
from stagecut.planner.report.verdict import ENDS, quality, resting_on


def rate_label(samples_per_s: float | None) -> str:
    """Samples per second with at least four digits, a dash where unknown; `unlimited` where nothing takes any time."""
    if samples_per_s is None:
        return UNKNOWN
    if math.isinf(samples_per_s):
        return "unlimited"
    return f"{samples_per_s:.{'4g' if samples_per_s < 1e4 else '0f'}} samples/s"


def wave_verdict(result: WaveResult, *, basis: TimeBasis | None = None) -> str:
    """What a search found and what it proved, in one sentence; see :func:`stagecut.planner.report.verdict.verdict`."""
    head = "interrupted: " if result.status is Status.INTERRUPTED else ""
    end = ENDS[result.stopped_by]
    if result.samples_per_s is not None:
        return f"{head}{rate_label(result.samples_per_s)}, {quality(result)}{end}{resting_on(basis)}"
    if result.status is Status.INFEASIBLE:
        return f"infeasible: {result.reason or 'no plan of the search space fits'}"
    none = f"no plan yet{end}" if end or head else "no plan found"
    return f"{head}{none}, and no proof that there is none"
