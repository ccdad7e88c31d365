"""Measured seconds by message size: made to rise, and fitted by a latency and a bandwidth."""

import itertools
from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.arrays import Floats

Curve = tuple[tuple[float, float], ...]
"""(bytes, seconds), increasing in bytes."""


def message_sizes(smallest: int, largest: int) -> tuple[int, ...]:
    """Bytes from the smallest to the largest, four times as many each; the largest always."""
    sizes = [smallest]
    while sizes[-1] * 4 < largest:
        sizes.append(sizes[-1] * 4)
    return (*sizes, largest) if largest > smallest else (smallest,)


def rising(curve: Curve) -> Curve:
    """The running maximum of a curve: a larger message never takes less time.

    A dip below an earlier time is noise; keeping the maximum errs to the slow side.
    """
    seconds = itertools.accumulate((measured_s for _, measured_s in curve), max)
    return tuple((size, value) for (size, _), value in zip(curve, seconds, strict=True))


def median_curve(curves: Sequence[Curve]) -> Curve:
    """Point by point the median of curves over the same sizes."""
    seconds = np.median([[value for _, value in curve] for curve in curves], axis=0)
    return tuple((size, float(value)) for (size, _), value in zip(curves[0], seconds, strict=True))


def slowest_curve(curves: Sequence[Curve]) -> Curve:
    """Point by point the largest time of curves over the same sizes."""
    seconds = np.max([[value for _, value in curve] for curve in curves], axis=0)
    return tuple((size, float(value)) for (size, _), value in zip(curves[0], seconds, strict=True))


def latency_and_bandwidth(curve: Curve) -> tuple[float, float]:
    """Least squares of the relative errors of latency_s + bytes / bandwidth.

    Returns
    -------
    latency_s, bandwidth_bytes_per_s
        The latency is at least 0; without a slope the largest message decides the bandwidth.
    """
    sizes, seconds = np.array(curve, dtype=float).T
    (latency_s, slope), *_ = np.linalg.lstsq(
        np.column_stack((1 / seconds, sizes / seconds)), np.ones(len(sizes)), rcond=None
    )
    if slope <= 0:
        return 0.0, float(sizes[-1] / seconds[-1])
    if latency_s < 0:
        return 0.0, 1 / _slope_through_origin(sizes, seconds)
    return float(latency_s), float(1 / slope)


def _slope_through_origin(sizes: Floats, seconds: Floats) -> float:
    """Without a latency, what makes the squares of the relative errors least."""
    ratio = sizes / seconds
    return float(ratio.sum() / (ratio**2).sum())
