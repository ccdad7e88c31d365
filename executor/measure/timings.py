"""Timed repetitions, and their summary without those that other programs disturbed."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.run_record import MAX_RUN_QUEUE_SHARE

Floats = NDArray[np.float64]


class Pass(StrEnum):
    """How a micro-batch goes through a stage."""

    WHOLE = "whole"
    """As in training."""
    LAYERS = "layers"
    """With the graph cut between layers, so that each can be timed."""
    RECOMPUTED = "recomputed"
    """The same with recomputation of every layer."""


class TimedPass(NamedTuple):
    """Which half of which pass was timed."""

    passed: Pass
    is_forward: bool


KINDS = tuple(TimedPass(passed, is_forward) for passed in Pass for is_forward in (True, False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One timed repetition in one process."""

    seconds: tuple[float, ...]
    """By part, such as the segments of a stage."""
    run_queue_share: float

    @property
    def is_clean(self) -> bool:
        """Whether the process had its processors to itself."""
        return self.run_queue_share <= MAX_RUN_QUEUE_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A summary of timings of the same thing, over all processes."""

    median_s: Floats
    """By part."""
    spread_s: Floats
    """Median absolute deviation, by part."""
    num_kept: int
    num_rejected: int
    contaminated: bool
    """Whether none were clean, so that none were rejected."""

    @property
    def total_s(self) -> float:
        """Sum over all parts."""
        return float(self.median_s.sum())


def summarize(timings: Sequence[Timing], *, gated: bool | None = None) -> Summary:
    """Medians of the clean timings, or of all.

    Parameters
    ----------
    gated
        Whether to reject timings that are not clean; None: if some are clean.
    """
    if gated is None:
        gated = any_clean(timings)
    kept = [timing for timing in timings if timing.is_clean or not gated]
    seconds = np.array([timing.seconds for timing in kept])
    median_s = np.median(seconds, axis=0)
    return Summary(
        median_s=median_s,
        spread_s=np.median(np.abs(seconds - median_s), axis=0),
        num_kept=len(kept),
        num_rejected=len(timings) - len(kept),
        contaminated=not gated,
    )


def any_clean(timings: Sequence[Timing]) -> bool:
    """Whether at least one is clean."""
    return any(timing.is_clean for timing in timings)


def done_share(timings: Sequence[Timing], repetitions: int) -> float:
    """Progress towards `repetitions` clean timings, or three times as many in total."""
    clean = sum(timing.is_clean for timing in timings)
    return max(clean / repetitions, len(timings) / (3 * repetitions))
