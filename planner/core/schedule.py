"""Pipeline schedules and their warm-up depths."""

from enum import StrEnum

import numpy as np

from stagecut.planner.core.interleaving import Interleaving
from stagecut.planner.core.numerics.arrays import Ints


class Schedule(StrEnum):
    """Order in which a stage runs its forwards and backwards."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    EAGER_ONE_F_ONE_B = "eager-1f1b"
    INTERLEAVED = "interleaved"


EASIEST_FIRST = (Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B, Schedule.GPIPE)
"""Schedules without shared devices by warm-up depth, and so by memory."""


def warmup_depth(schedule: Schedule, position: int, num_microbatches: int) -> int:
    """Forwards a stage may run before its first backward if every stage has its own devices.

    The position is 1 for the last stage of the pipeline, S for the first. For `interleaved`, see
    :func:`warmup_depths`.

    Notes
    -----
    1F1B: q (PipeDream, SOSP 2019; DAPPLE, PPoPP 2021). Eager 1F1B: 2q - 1, one more micro-batch in
    flight per later stage, to hide transfers. GPipe: all micro-batches.
    """
    depth = {
        Schedule.GPIPE: num_microbatches,
        Schedule.ONE_F_ONE_B: position,
        Schedule.EAGER_ONE_F_ONE_B: 2 * position - 1,
    }[schedule]
    return min(depth, num_microbatches)


def warmup_depths(schedule: Schedule, num_stages: int, num_microbatches: int, *, chunks: int = 1) -> tuple[int, ...]:
    """Forwards every stage may run before its first backward, first stage first.

    Under `interleaved`, the number of stages is a multiple of `chunks`, the stages per device group; raises a
    BadInputError if the number of micro-batches is not a multiple of the number of device groups.
    """
    if schedule is not Schedule.INTERLEAVED:
        return tuple(warmup_depth(schedule, num_stages - stage, num_microbatches) for stage in range(num_stages))
    order = Interleaving(num_devices=num_stages // chunks, chunks=chunks, num_microbatches=num_microbatches)
    return tuple(order.warmup_depth.tolist())


def can_slice(schedule: Schedule, micro_batch: int) -> bool:
    """Whether micro-batches can be halved: if their size is even and every stage has its own devices."""
    return schedule is not Schedule.INTERLEAVED and micro_batch % 2 == 0


def num_halved(num_sliced: int, *, depth: int, micro_batch: int, replicas: int) -> int:
    """How many of the first micro-batches a stage forwards in halves: the sliced ones within its warm-up.

    Zero if its replicas cannot share half a micro-batch evenly.
    """
    return 0 if micro_batch % (2 * replicas) else min(num_sliced, depth)


def pair_loops(depth: Ints, next_depth: Ints, num_microbatches: int) -> tuple[Ints, Ints]:
    """How a stage and the next one alternate after their warm-up, elementwise.

    A forward of the stage enables a forward, then a backward, of the next one, whose gradient
    enables a backward of the stage. Such a loop carries a = k - k' + 1 micro-batches.

    Returns a and the number of loops, n = floor((M - 1 - k) / a) + 1 if M > k, else 0.
    """
    per_loop = depth - next_depth + 1
    loops = np.where(num_microbatches > depth, (num_microbatches - 1 - depth) // per_loop + 1, 0)
    return per_loop, loops
