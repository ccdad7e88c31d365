"""Pipeline schedules and the warm-up depth each gives a stage."""

from enum import StrEnum


class Schedule(StrEnum):
    """Order in which a stage runs its forwards and backwards."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    EAGER_ONE_F_ONE_B = "eager-1f1b"


def warmup_depth(schedule: Schedule, position: int, num_microbatches: int) -> int:
    """Forwards a stage may run before its first backward.

    Parameters
    ----------
    position
        1 for the last stage of the pipeline, S for the first.

    Notes
    -----
    1F1B: q (PipeDream, SOSP 2019; DAPPLE, PPoPP 2021). Eager 1F1B: 2q - 1, which keeps one
    more micro-batch in flight per later stage to hide transfers. GPipe: all of them.
    """
    depth = {
        Schedule.GPIPE: num_microbatches,
        Schedule.ONE_F_ONE_B: position,
        Schedule.EAGER_ONE_F_ONE_B: 2 * position - 1,
    }[schedule]
    return min(depth, num_microbatches)
