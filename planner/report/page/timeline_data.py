"""The bars of a timeline as plain values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.report.gantt import Style

TICKS = 10_000_000
"""Times are whole ticks, of which a timeline has this many: short to write, and finer than any screen."""

Data = dict[str, object]
COLUMNS = ("kind", "stage", "first", "samples", "critical")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lane:
    """What is computed in one row, in any order; arrays have shape (n,)."""

    label: str
    short: str
    """For narrow screens."""
    start_s: Floats
    end_s: Floats
    kind: Ints
    """Number of its style; forwards and backwards are the first two."""
    stage: Ints
    first: Ints
    """First sample, or the minibatch."""
    samples: Ints
    """Samples or minibatches."""
    critical: Ints
    """Whether on the critical path, 1 or 0."""
    ends_s: tuple[float, ...] = ()
    """Where a line is drawn across the row."""


def timeline_data(lanes: Sequence[Lane], styles: Sequence[Style], *, total_s: float) -> Data:
    """All rows, from zero to `total_s`."""
    return {
        "total_s": total_s,
        "ticks": TICKS,
        "kinds": [{"name": each.name, "colour": each.colour, "hatched": each.hatch is not None} for each in styles],
        "lanes": [lane.label for lane in lanes],
        "short_lanes": [lane.short for lane in lanes],
        "gantt": [_bars(lane, total_s) for lane in lanes],
    }


def steps_in_ticks(times_s: Floats, total_s: float) -> list[int]:
    """Ascending times as steps from one to the next, the first one from zero."""
    steps: list[int] = np.diff(ticks(times_s, total_s), prepend=0).tolist()
    return steps


def ticks(times_s: Floats, total_s: float) -> Ints:
    """Times in whole ticks."""
    return np.rint(times_s / (total_s or 1.0) * TICKS).astype(np.int64)


def _bars(lane: Lane, total_s: float) -> Data:
    """In order of time: starts as steps from bar to bar, all times in ticks."""
    seen = np.flatnonzero(lane.end_s > lane.start_s)
    seen = seen[np.argsort(lane.start_s[seen], kind="stable")]
    start_s, end_s = lane.start_s[seen], lane.end_s[seen]
    return {
        "step": steps_in_ticks(start_s, total_s),
        "length": (ticks(end_s, total_s) - ticks(start_s, total_s)).tolist(),
        "ends_s": lane.ends_s,
        **{name: getattr(lane, name)[seen].tolist() for name in COLUMNS},
    }
