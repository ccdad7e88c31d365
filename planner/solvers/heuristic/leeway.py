"""How much longer than the last stage of a pipeline earlier stages may take without making it slower."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule, warmup_depths


def leeways(variant: Variant, num_stages: int, forward_share: float) -> Floats:
    """How many times as long as the last one each stage may take, shape (S,), where F / (F + B) is that share.

    A stage of position q whose later stages take about as long has no longer rows than the last one if it takes at most

        (M - 1) / (M - 1 - (k - 1) F / (F + B)) times as long (fill),
        1 + (q - 1) / (M - 1) times (busy), and
        (M - 1 - q) / (M - 1 - k) times (late) where M - 1 > k.

    Under 1F1B, k = q, that is 1; eager 1F1B lets the first stages be slower. Under GPipe all wait for the slowest.
    """
    more, position = variant.num_microbatches - 1, np.arange(num_stages, 0, -1)
    depth = np.array(warmup_depths(variant.schedule, num_stages, variant.num_microbatches))
    if variant.schedule is Schedule.GPIPE or more == 0:
        return np.ones(num_stages)
    left = more - (depth - 1) * forward_share
    fill = np.where(left > 0, more / np.where(left > 0, left, 1.0), np.inf)
    busy = 1 + (position - 1) / more
    late = np.where(more > depth, (more - position) / np.maximum(1, more - depth), np.inf)
    least: Floats = np.maximum(1.0, np.minimum.reduce([fill, busy, late]))
    return least
