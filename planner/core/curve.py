"""Piecewise linear message times by size."""

import math
from itertools import pairwise

import numpy as np

from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.numerics.arrays import Floats

Points = tuple[tuple[float, float], ...]
"""Measured (bytes, seconds), with strictly increasing bytes and non-decreasing seconds."""


def require_points(owner: str, points: Points, *, least: int) -> None:
    """Require at least `least` points, in order."""
    require(len(points) >= least, owner, "table", f"of {least} points or more", points)
    numbers = [number for point in points for number in point]
    in_range = all(math.isfinite(number) and number >= 0 for number in numbers)
    require(in_range, owner, "table", "of numbers of at least 0", points)
    rising = all(low[0] < high[0] and low[1] <= high[1] for low, high in pairwise(points))
    require(rising, owner, "table", "in order of bytes, with non-decreasing seconds", points)
    smooth = all(math.isfinite(last_slope(pair)) for pair in pairwise(points))
    require(smooth, owner, "table", "of sizes that are further apart", points)


def seconds_at(points: Points, num_bytes: float | Floats, beyond_s_per_byte: float) -> Floats:
    """Linear between points, constant below the first, and with a given slope beyond the last."""
    sizes, seconds = np.array(points, dtype=float).T
    beyond_s = np.maximum(0.0, num_bytes - sizes[-1]) * beyond_s_per_byte
    total_s: Floats = np.interp(num_bytes, sizes, seconds) + beyond_s
    return total_s


def last_slope(points: Points) -> float:
    """Slope of the last segment in seconds per byte; needs two points or more."""
    (low_bytes, low_s), (high_bytes, high_s) = points[-2:]
    return (high_s - low_s) / (high_bytes - low_bytes)


def stretched(points: Points, times: float, over: float = 1.0) -> Points:
    """The points with their bytes multiplied by times / over."""
    return tuple((num_bytes * times / over, seconds) for num_bytes, seconds in points)
