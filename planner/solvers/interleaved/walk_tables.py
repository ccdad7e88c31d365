"""What the rows of walks over the device groups of a shape with two chunks are made of."""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.numerics.tolerances import MEMORY_ROUNDING
from stagecut.planner.solvers.interleaved.costs import ChunkCosts, Cost


class Tables(NamedTuple):
    """What the rows are made of; sums over the layers before each boundary have shape (L + 1,)."""

    num_groups: int
    num_microbatches: float
    work_s: Floats
    """M (F + B)."""
    forward_s: Floats
    backward_s: Floats
    """In the first mode, the fastest."""
    backward_in_mode_s: Floats
    """Shape (modes, L + 1)."""
    tail_s: Floats
    tail_offset_s: float
    """Of each stage."""
    sync_s: Floats
    sync_offset_s: float
    """Of each stage."""
    transfer_s: Floats
    """Behind each stage, by where it stops, shape (S, L + 1)."""
    queues: Ints
    """Whether the all-reduces of a device group take the link of those of the one before it, shape (D,).

    0: no; 1: yes; 2: and the first of them are served before the last gradient that leaves the link.
    """
    transfers_before_s: Floats
    """The least before a stage that starts at a layer, shape (S + 1, L + 1)."""
    transfers_between_s: Floats
    """The least from the second stage of a device group back to its first one, shape (D,)."""
    transfers_behind_s: Floats
    """The least behind that boundary, shape (S + 1, L + 1)."""
    work_before: Floats
    """Forwards and backwards of both chunks before the first backward of a stage, shape (D, 2, 4)."""
    static_bytes: Floats
    """Shape (modes, L + 1), like the next."""
    saved_bytes: Floats
    working_bytes: Floats
    """Shape (modes, L + 1, L + 1)."""
    held: Floats
    """Micro-batches of both chunks held during an action, and the chunk of that, shape (n, 3)."""
    first_held: Ints
    """Where those of each device group begin, shape (D + 1,)."""
    limit_bytes: float


def tables_of(chunks: ChunkCosts) -> Tables:
    """Of the cuts of one shape."""
    shape, prefix = chunks.shape, np.ascontiguousarray(chunks.prefix.swapaxes(0, 1))
    before_s, behind_s = _least_transfers(chunks.transfer_s)
    least_s = chunks.transfer_s[:-1, 1:-1].min(axis=1)
    counts = np.concatenate(shape.order.before_first_backward, axis=2).swapaxes(0, 1)
    held, first_held = chunks.most_held()
    return Tables(
        num_groups=shape.num_groups,
        num_microbatches=float(shape.variant.num_microbatches),
        work_s=shape.variant.num_microbatches * (prefix[Cost.FORWARD, 0] + prefix[Cost.BACKWARD, 0]),
        forward_s=prefix[Cost.FORWARD, 0],
        backward_s=prefix[Cost.BACKWARD, 0],
        backward_in_mode_s=prefix[Cost.BACKWARD],
        tail_s=prefix[Cost.TAIL, 0],
        tail_offset_s=float(chunks.offset[Cost.TAIL]),
        sync_s=prefix[Cost.SYNC, 0],
        sync_offset_s=float(chunks.offset[Cost.SYNC]),
        transfer_s=chunks.transfer_s,
        queues=chunks.queues,
        transfers_before_s=before_s,
        transfers_between_s=sliding_window_view(least_s, shape.num_groups).sum(axis=1),
        transfers_behind_s=behind_s,
        work_before=np.ascontiguousarray(counts, dtype=float),
        static_bytes=prefix[Cost.STATIC],
        saved_bytes=prefix[Cost.SAVED],
        working_bytes=chunks.working_bytes,
        held=held,
        first_held=first_held,
        limit_bytes=float(chunks.limit_bytes * (1 + MEMORY_ROUNDING)),
    )


def _least_transfers(transfer_s: Floats) -> tuple[Floats, Floats]:
    """Least sums of the transfers before and behind the start of each stage at each layer, shape (S + 1, L + 1)."""
    num_stages, size = transfer_s.shape
    before_s, behind_s = np.full((2, num_stages + 1, size), np.inf)
    before_s[0, 0] = behind_s[num_stages, -1] = 0.0
    for stage in range(num_stages):
        before_s[stage + 1, 1:] = np.minimum.accumulate(before_s[stage])[:-1] + transfer_s[stage, 1:]
    for stage in range(num_stages - 1, -1, -1):
        onward_s = behind_s[stage + 1] + transfer_s[stage]
        behind_s[stage, :-1] = np.minimum.accumulate(onward_s[:0:-1])[::-1]
    return before_s, behind_s


@compiled
def first_fitting(of: Tables, group: int, start: int, stop: int, start2: int, stop2: int) -> int:
    """The first mode in which a device group fits in memory, -1 if there is none."""
    for mode in range(len(of.static_bytes)):
        static, saved, working = of.static_bytes[mode], of.saved_bytes[mode], of.working_bytes[mode]
        most = 0.0
        for row in range(of.first_held[group], of.first_held[group + 1]):
            first, second, acting = of.held[row]
            held = first * (saved[stop] - saved[start]) + second * (saved[stop2] - saved[start2])
            most = max(most, held + (working[start2, stop2] if acting > 0 else working[start, stop]))
        if static[stop] - static[start] + static[stop2] - static[start2] + most <= of.limit_bytes:
            return mode
    return -1
