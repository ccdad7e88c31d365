"""Measured seconds by message size: made monotone, and fitted with a latency and a bandwidth."""

import itertools
from collections.abc import Sequence

import numpy as np

Curve = tuple[tuple[float, float], ...]
"""(bytes, seconds), increasing in bytes."""


def message_sizes(smallest: int, largest: int) -> tuple[int, ...]:
    """Message sizes in bytes from the smallest to the largest, each four times the previous; always includes both."""
    sizes = [smallest]
    while sizes[-1] * 4 < largest:
        sizes.append(sizes[-1] * 4)
    return (*sizes, largest) if largest > smallest else (smallest,)


def rising(curve: Curve) -> Curve:
    """The running maximum of a curve: a larger message never takes less time.

    A dip below an earlier time is noise; the maximum errs on the slow side.
    """
    seconds = itertools.accumulate((measured_s for _, measured_s in curve), max)
    return tuple((size, value) for (size, _), value in zip(curve, seconds, strict=True))


def median_curve(curves: Sequence[Curve]) -> Curve:
    """The pointwise median of curves over the same sizes."""
    return tuple(
        (points[0][0], float(np.median([value for _, value in points]))) for points in zip(*curves, strict=True)
    )


def slowest_curve(curves: Sequence[Curve]) -> Curve:
    """The pointwise maximum of curves over the same sizes."""
    return tuple(max(points) for points in zip(*curves, strict=True))


def latency_and_bandwidth(curve: Curve) -> tuple[float, float]:
    """Fit latency_s + bytes / bandwidth by least squares of the relative errors.

    Returns
    -------
    latency_s, bandwidth_bytes_per_s
        The latency is at least 0; if the slope is not positive, the largest message determines the bandwidth.
    """
    sizes, seconds = np.array(curve, dtype=float).T
    (latency_s, slope), *_ = np.linalg.lstsq(
        np.column_stack((1 / seconds, sizes / seconds)), np.ones(len(sizes)), rcond=None
    )
    if slope <= 0:
        return 0.0, float(sizes[-1] / seconds[-1])
    if latency_s < 0:  # least squares without a latency
        ratio = sizes / seconds
        return 0.0, float((ratio**2).sum() / ratio.sum())
    return float(latency_s), float(1 / slope)
