"""Estimated iteration times of many cuts at once.

These are the rows of :mod:`stagecut.planner.simulator.bounds`, deliberately stated a second time: they are
evaluated for n cuts at once, rows that share terms are merged for speed, and the messages that share a link make a
row of their own. Tests check that the estimate of a plan lies between its lower bound and its simulated time.
"""

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.schedule import Schedule, pair_loops
from stagecut.planner.solvers.heuristic.sequence_costs import CutCosts, SequenceCosts

STAGES_PER_CALL = 1 << 18
"""Stages evaluated together, which bounds the memory for long pipelines; no effect on speed was measured."""


def estimated_times(sequence: SequenceCosts, stops: Ints) -> Floats:
    """Times of cuts (n, S), close to the simulated ones and seldom above them; infinite where a stage does not fit."""
    size = max(1, STAGES_PER_CALL // sequence.num_stages)
    times_s = np.full(len(stops), np.inf)
    for first in range(0, len(stops), size):
        costs = sequence.costs(stops[first : first + size])
        fits = np.isfinite(costs.backward_s).all(axis=1)
        with np.errstate(invalid="ignore"):
            times_s[first : first + size][fits] = _largest_row(sequence, costs)[fits]
    return times_s


def _largest_row(sequence: SequenceCosts, costs: CutCosts) -> Floats:
    """The largest row of each cut, shape (n,)."""
    forward_s, backward_s, transfer_s, tail_s = costs.forward_s, costs.backward_s, costs.transfer_s, costs.tail_s
    micro_batches, depth = sequence.variant.num_microbatches, sequence.depth
    work_s = forward_s + backward_s
    forward_before = _before(costs.first_s[:, :-1] + costs.first_transfer_s)
    whole_before = forward_before if costs.first_s is forward_s else _before(forward_s[:, :-1] + transfer_s)
    backward_before = _before(backward_s[:, :-1] + transfer_s)
    total_s = (forward_before + backward_before + work_s)[:, -1:]
    first_tail_s = tail_s[:, :1]
    later_s = (micro_batches - 1) * work_s - (depth - 1) * forward_s
    loop_s = total_s - whole_before - backward_before + (micro_batches - depth - 1) * work_s
    late_s = np.maximum.accumulate(np.where(micro_batches > depth, loop_s, -np.inf), axis=1)
    rows = [
        # busy and sync, fill and drain, late
        forward_before + micro_batches * work_s + np.maximum(backward_before + first_tail_s, tail_s),
        total_s + later_s + np.maximum(first_tail_s, tail_s - backward_before),
        late_s + whole_before + forward_s + depth * backward_s + np.maximum(tail_s, backward_before + first_tail_s),
    ]
    if sequence.num_stages > 1:
        rows.append(total_s + first_tail_s + (micro_batches - 1) * transfer_s)
        rows.append(total_s + first_tail_s + _pair_loops(sequence, costs, work_s))
    if len(sequence.link_load):
        # A shared link carries all its messages before the first stage ends its last backward.
        rows.append(first_tail_s + micro_batches * transfer_s @ sequence.link_load.T)
    if sequence.variant.schedule is Schedule.GPIPE:
        slowest_s = _largest(forward_s, transfer_s) + _largest(backward_s, transfer_s)
        rows.append(total_s + first_tail_s + (micro_batches - 1) * slowest_s)
    largest_s: Floats = np.max([row.max(axis=1) for row in rows], axis=0)
    return largest_s


def _pair_loops(sequence: SequenceCosts, costs: CutCosts, work_s: Floats) -> Floats:
    micro_batches, depth = sequence.variant.num_microbatches, sequence.depth
    per_loop, loops = pair_loops(depth[:-1], depth[1:], micro_batches)
    left = micro_batches - per_loop * loops
    extra_s: Floats = (
        loops * (work_s[:, :-1] + work_s[:, 1:] + 2 * costs.transfer_s)
        + (left - 1) * costs.backward_s[:, :-1]
        + np.maximum(0, left - depth[:-1]) * costs.forward_s[:, :-1]
    )
    return extra_s


def _largest(stages_s: Floats, transfer_s: Floats) -> Floats:
    """The slowest stage or message of each cut, shape (n, 1)."""
    largest_s: Floats = np.maximum(
        stages_s.max(axis=1, keepdims=True), transfer_s.max(axis=1, keepdims=True, initial=0.0)
    )
    return largest_s


def _before(values_s: Floats) -> Floats:
    """Exclusive prefix sums along each row."""
    sums = np.zeros((len(values_s), values_s.shape[1] + 1))
    np.cumsum(values_s, axis=1, out=sums[:, 1:])
    return sums
