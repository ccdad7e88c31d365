"""Depths worth playing: how many minibatches each stage of a worker holds before its first backward."""

from collections.abc import Iterator, Sequence

import numpy as np

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.workers.rows.row_tables import Setting
from stagecut.planner.workers.rows.worker_rows import Depths, WorkerRows

FURTHER = (2, 3)
"""More minibatches on each stage than on the one behind it: 2 hide transfers, more are of use where messages queue."""


def depth_choices(rows: WorkerRows, setting: Setting, period_s: float) -> list[Depths]:
    """The least depths for a period, then more on all stages where there is memory; () if a stage does not fit.

    A stage that need not recompute for the least depth does not for a larger one: it would be slower.
    """
    least = rows.least_depths(period_s)
    if least is None:
        limits = [max((own.most for own in options), default=0) for options in rows.options]
    else:
        modes = [rows.option(index, depth) for index, depth in enumerate(least)]
        limits = [0 if own is None else own.most for own in modes]
    limits = [min(limit, setting.deepest) for limit in limits]
    behind = np.arange(len(limits) - 1, -1, -1)
    # With one step a wave the least depth is 1: there 1F1B takes its place.
    wishes = [1 + further * behind for further in (int(rows.flushes), *FURTHER)]
    return [_within(wanted, np.array(least or np.ones_like(behind)), limits) for wanted in wishes]


def _within(wanted: Ints, least: Ints, limits: Sequence[int]) -> Depths:
    """As near to what is wanted as memory allows: what is added to the least depths never rises along the pipeline.

    Else a stage without memory for more would take turns with the one behind it.
    """
    depths = least + np.minimum.accumulate(np.minimum(np.maximum(wanted, least), limits) - least)
    return tuple(depths.tolist()) if depths.min() > 0 else ()


def monotone(depths: Depths, index: int, depth: int) -> Depths:
    """Another depth for one stage, those before it at least and those behind it at most as large."""
    before = (max(own, depth) for own in depths[:index])
    return (*before, depth, *(min(own, depth) for own in depths[index + 1 :]))


def all_depths(most: Sequence[int]) -> Iterator[Depths]:
    """Every way that never rises along the pipeline and keeps limits."""
    if not most:
        yield ()
        return
    for behind in all_depths(most[1:]):
        for depth in range(behind[0] if behind else 1, most[0] + 1):
            yield depth, *behind
