"""The answer in one sentence."""

import math

from stagecut.planner.choice_graphs.result import ChoiceResult
from stagecut.planner.core.numerics.tolerances import RECOMPUTED
from stagecut.planner.core.result import Result, Status, StopCause
from stagecut.planner.core.units import format_bytes, format_seconds
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.cost.time_basis import Basis, TimeBasis
from stagecut.planner.report.labels import run_label
from stagecut.planner.sharding_search.scheme_result import SchemeResult

SMALL_GAP = 1e-4
"""Largest gap at which a plan may be called optimal; that of a search by default."""
ENDS = {
    None: "",
    StopCause.TIME: " when the time limit was reached",
    StopCause.MEMORY: " when the memory limit was reached",
    StopCause.FAULT: " when an internal fault ended the search",
    StopCause.USER: "",
}
"""What ended a search, as the end of a sentence; an interruption is mentioned at its beginning."""


def verdict(result: Result, *, even_split_s: float | None = None, basis: TimeBasis | None = None) -> str:
    """What a search found and what it proved, in one sentence, and what the times of layers rest on if that is given.

    Also compares the plan with an even split (equal layer counts on all devices), given the iteration time of that:
    infinite if it does not fit in memory, None for no comparison.
    """
    if result.objective_s is None:
        return _without_plan(result)
    head = "interrupted: " if result.status is Status.INTERRUPTED else ""
    sentence = f"{head}{format_seconds(result.objective_s)} per iteration, {quality(result)}{ENDS[result.stopped_by]}"
    compared = "" if even_split_s is None else f"; {speed_against_even_split(result.objective_s, even_split_s)}"
    return sentence + compared + resting_on(basis)


def resting_on(basis: TimeBasis | None) -> str:
    """What the times of layers rest on, as the end of a verdict; empty if not given."""
    if basis is None:
        return ""
    if basis.basis is not Basis.BOTH:
        return f"; layer times {basis.basis}"
    words = {Basis.MEASURED: "measured", Basis.ESTIMATED: "estimated", Basis.BOTH: "partly measured"}
    parts = (f"{word} on {', '.join(names)}" for own, word in words.items() if (names := basis.on(own)))
    return f"; layer times {', '.join(parts)}"


def cost_of_framework(objective_s: float, name: str, free_s: float | None, bound_s: float | None) -> str:
    """How much longer a plan for a framework takes than plans without one, in one sentence.

    Given the fastest of those found and a bound on them, each None if there is none.
    """
    found = "no faster plan than this one was found"
    if free_s is not None and free_s < objective_s * (1 - RECOMPUTED):
        found = f"a plan takes {format_seconds(free_s)}, {100 * (1 - free_s / objective_s):.2g} % less"
    if not bound_s:
        return f"without the restriction to {name}, {found}"
    most = f"this one takes at most {rounded_up_percent(max(0.0, objective_s / bound_s - 1))} longer than any"
    return f"without the restriction to {name}, {found}; {most}"


def quality(result: Result | WaveResult | ChoiceResult | SchemeResult) -> str:
    """How close to optimal a plan is known to be; `proven optimal` only where it is."""
    gap = result.gap
    if gap is None:
        return "without a proof of how good that is"
    if result.status is Status.OPTIMAL and gap <= RECOMPUTED:
        return "proven optimal"
    if result.status is Status.OPTIMAL and gap <= SMALL_GAP + RECOMPUTED:
        return f"proven optimal up to {rounded_up_percent(gap)}"
    return f"within {rounded_up_percent(gap)} of optimal"


def speed_against_even_split(objective_s: float, even_split_s: float) -> str:
    """How many times faster than equal layer counts, for example `1.42x faster than an even split`."""
    if math.isinf(even_split_s):
        return "an even split does not fit in memory"
    ratio = time_ratio(even_split_s, objective_s)
    if abs(ratio - 1) < 0.005:
        return "as fast as an even split"
    return f"{ratio:.2f}x faster than an even split" if ratio > 1 else f"{1 / ratio:.2f}x slower than an even split"


def time_ratio(seconds: float, reference_s: float) -> float:
    """How many times longer; two times of zero are equally long."""
    if reference_s > 0:
        return seconds / reference_s
    return 1.0 if seconds == reference_s else math.inf


def rounded_up_percent(share: float) -> str:
    """Two significant figures, never less than the share itself: a claim has to hold as printed."""
    if share <= 0:
        return "0 %"
    percent = 100 * share
    step = 10.0 ** (math.floor(math.log10(percent)) - 1)
    return f"{math.ceil(percent / step - RECOMPUTED) * step:.6g} %"


def _without_plan(result: Result) -> str:
    if result.status is Status.INFEASIBLE:
        return f"infeasible: {_nearest_miss(result)}"
    if result.status is Status.INTERRUPTED:
        return "interrupted: no plan yet, and no proof that there is none"
    end = ENDS[result.stopped_by]
    return f"{f'no plan yet{end}' if end else 'no plan found'}, and no proof that there is none"


def _nearest_miss(result: Result) -> str:
    if not result.shortages:
        return "no plan of the search space fits"
    most = max(result.shortages, key=lambda shortage: shortage.short_bytes)
    others = len(result.shortages) - 1
    also = f" ({others} other {'stage lacks' if others == 1 else 'stages lack'} memory too)" if others else ""
    return (
        f"no plan of the search space fits in memory; in the closest one, layers "
        f"{run_label(*most.layers)} on {most.device_type} lack {format_bytes(most.short_bytes)}{also}. "
        f"Suggested fix: {most.remedy}"
    )
