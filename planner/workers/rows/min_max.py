"""Cuts of a line whose largest part is as small as possible."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats


def min_max_stops(sizes: Floats) -> tuple[float, tuple[int, ...]]:
    """The largest part and the stops of the best cut, given the size of every run [i, j), shape (k, L + 1, L + 1).

    T_q(j) = min over i of max(T_{q-1}(i), size[q,i,j]); runs that must not be are infinite.
    """
    num_nodes = sizes.shape[1]
    largest = np.where(np.arange(num_nodes) == 0, 0.0, np.inf)
    starts = []
    for own in sizes:
        values = np.maximum(largest[:, None], own)
        starts.append(values.argmin(axis=0))
        largest = values.min(axis=0)
    stops = [num_nodes - 1]
    for start in reversed(starts[1:]):
        stops.insert(0, int(start[stops[0]]))
    return float(largest[-1]), tuple(stops)
