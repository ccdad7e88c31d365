"""Timed repetitions, and what is left of them when those that others disturbed are rejected."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from stagecut.executor.measure.contamination import CLEAN_SHARE
from stagecut.planner.core.arrays import Floats


class Pass(StrEnum):
    """How a micro-batch goes through a stage."""

    WHOLE = "whole"
    """As in a training."""
    LAYERS = "layers"
    """With a cut between any two layers, so that each can be timed."""
    RECOMPUTED = "recomputed"
    """The same, every layer keeping its input only."""


class Kind(NamedTuple):
    """What was timed of a pass."""

    passed: Pass
    is_forward: bool


KINDS = tuple(Kind(passed, is_forward) for passed in Pass for is_forward in (True, False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Something done once in one process."""

    seconds: tuple[float, ...]
    """By part, such as the segments of a stage."""
    run_queue_share: float

    @property
    def is_clean(self) -> bool:
        """Whether the process had its processors for itself."""
        return self.run_queue_share <= CLEAN_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Readings of one thing, over all processes."""

    median_s: Floats
    """By part."""
    spread_s: Floats
    """Median absolute deviation from it, by part."""
    num_kept: int
    num_rejected: int
    contaminated: bool
    """Nothing was rejected, for want of clean readings."""

    @property
    def total_s(self) -> float:
        """All parts together."""
        return float(self.median_s.sum())


def summarize(readings: Sequence[Reading], *, gated: bool | None = None) -> Summary:
    """Medians of clean readings, or of all.

    Parameters
    ----------
    gated
        Whether to reject readings that are not clean; None: if there are others.
    """
    if gated is None:
        gated = any_clean(readings)
    kept = [reading for reading in readings if reading.is_clean or not gated]
    seconds = np.array([reading.seconds for reading in kept])
    median_s = np.median(seconds, axis=0)
    return Summary(
        median_s=median_s,
        spread_s=np.median(np.abs(seconds - median_s), axis=0),
        num_kept=len(kept),
        num_rejected=len(readings) - len(kept),
        contaminated=not gated,
    )


def any_clean(readings: Sequence[Reading]) -> bool:
    """Whether there is a clean one."""
    return any(reading.is_clean for reading in readings)


def has_enough(readings: Sequence[Reading], repetitions: int) -> bool:
    """Whether there are so many clean readings, or three times as many in all."""
    return done_share(readings, repetitions) >= 1


def done_share(readings: Sequence[Reading], repetitions: int) -> float:
    """How much is there of what is enough: so many clean readings, or three times as many in all."""
    clean = sum(reading.is_clean for reading in readings)
    return max(clean / repetitions, len(readings) / (3 * repetitions))
