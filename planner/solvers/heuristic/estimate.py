"""Estimated iteration times of many cuts at once.

These are the rows of :mod:`stagecut.planner.simulator.bounds`, deliberately stated a second time: they are
evaluated for n cuts at once, rows that share terms are merged for speed, gradients and all-reduces queue on their way
home, and the messages that share a link make a row of their own. Tests check that the estimate of a plan lies between
its lower bound and its simulated time.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled, inlined
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.heuristic.sequence_costs import CutCosts, SequenceCosts, WaysHome

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
    forward_before = _before(costs.first_s[:, :-1] + costs.first_transfer_s)
    whole_before = forward_before if costs.first_s is forward_s else _before(forward_s[:, :-1] + transfer_s)
    total_s = (forward_before + _before(backward_s[:, :-1] + transfer_s) + forward_s + backward_s)[:, -1:]
    first_tail_s = tail_s[:, :1]
    end_s = np.empty_like(forward_s)
    _set_last_backwards(forward_s, backward_s, transfer_s, forward_before, whole_before, depth, micro_batches, end_s)
    all_reduce_s, update_s = tail_s - costs.update_s, costs.update_s
    rows = [_home_s(end_s, backward_s, transfer_s, all_reduce_s, update_s, sequence.ways_home)[:, None]]
    if sequence.num_stages > 1:
        rows.append(total_s + first_tail_s + (micro_batches - 1) * transfer_s)
    if len(sequence.link_load):
        # A shared link carries all its messages before the first stage ends its last backward.
        rows.append(first_tail_s + micro_batches * transfer_s @ sequence.link_load.T)
    if sequence.variant.schedule is Schedule.GPIPE:
        slowest_s = _largest(forward_s, transfer_s) + _largest(backward_s, transfer_s)
        rows.append(total_s + first_tail_s + (micro_batches - 1) * slowest_s)
    largest_s: Floats = np.max([row.max(axis=1) for row in rows], axis=0)
    return largest_s


@compiled
def _set_last_backwards(
    forward_s: Floats,
    backward_s: Floats,
    transfer_s: Floats,
    forward_before: Floats,
    whole_before: Floats,
    depth: Ints,
    micro_batches: int,
    end_s: Floats,
) -> None:
    """Set when each stage ends its last backward at the earliest, shape (n, S).

    As in :mod:`stagecut.planner.simulator.turns`; loops of one kind, and what they leave on the stage alone.
    """
    num_cuts, num_stages = end_s.shape
    for cut in range(num_cuts):
        forward, backward, transfer, end = forward_s[cut], backward_s[cut], transfer_s[cut], end_s[cut]
        # The end of the last forward of each stage, if all pass the slowest stage or message before it.
        slowest, last = 0.0, np.empty(num_stages)
        turned = np.empty(num_stages)
        for stage in range(num_stages):
            slowest = max(slowest, forward[stage], transfer[stage - 1] if stage else 0.0)
            begun = forward_before[cut, stage] + forward[stage]
            last[stage] = begun + (micro_batches - 1) * slowest
            turned[stage] = begun + (depth[stage] - 1) * slowest + backward[stage]
        # The end of the first backward of each stage.
        for stage in range(num_stages - 2, -1, -1):
            turned[stage] = max(turned[stage], turned[stage + 1] + transfer[stage] + backward[stage])
        start = -np.inf
        for stage in range(num_stages):
            work, left = forward[stage] + backward[stage], micro_batches - depth[stage] - 1
            if left >= 0:
                loop, loops = work, left * work
                for last_stage in range(stage + 1, num_stages):
                    loop += forward[last_stage] + backward[last_stage] + 2 * transfer[last_stage - 1]
                    carried = depth[stage] - depth[last_stage] + 1
                    loops = max(loops, left // carried * loop + left % carried * work)
                start = max(start, turned[stage] + loops - whole_before[cut, stage])
            last[stage] = max(last[stage], start + whole_before[cut, stage] + forward[stage])
            end[stage] = max(
                forward_before[cut, stage] + micro_batches * work,
                turned[stage] + (micro_batches - 1) * work - (depth[stage] - 1) * forward[stage],
            )
        # The way back of the gradients of a later stage, behind the slowest backward or message on it.
        for last_stage in range(num_stages):
            arrived, slowest = last[last_stage] + backward[last_stage], backward[last_stage]
            end[last_stage] = max(end[last_stage], arrived + (depth[last_stage] - 1) * slowest)
            for stage in range(last_stage - 1, -1, -1):
                arrived += transfer[stage] + backward[stage]
                slowest = max(slowest, transfer[stage], backward[stage])
                end[stage] = max(end[stage], arrived + (depth[last_stage] - 1) * slowest)


@compiled
def _home_s(
    end_s: Floats, backward_s: Floats, transfer_s: Floats, sync_s: Floats, update_s: Floats, links: WaysHome
) -> Floats:
    """When gradients and all-reduces have come home that each stage can send at `end_s` at the earliest, shape (n,).

    As in :mod:`stagecut.planner.simulator.ways_home`; all arguments have shape (n, S) but `transfer_s`, (n, S - 1).
    """
    num_cuts, num_stages = end_s.shape
    home_s, free_s = np.zeros(num_cuts), np.zeros(1 + max(links.gradient.max(), links.all_reduce.max()))
    for cut in range(num_cuts):
        free_s[:] = 0.0
        arrived_s = 0.0
        for stage in range(num_stages - 1, -1, -1):
            if backward_s[cut, stage] == 0:
                free_s[:] = 0.0
            ready_s = max(end_s[cut, stage], arrived_s + backward_s[cut, stage])
            if stage > 0:
                arrived_s = _served(free_s, links.gradient[stage], ready_s, transfer_s[cut, stage - 1])
            reduced_s = _served(free_s, links.all_reduce[stage], ready_s, sync_s[cut, stage])
            home_s[cut] = max(home_s[cut], reduced_s + update_s[cut, stage])
    return home_s


@inlined
def _served(free_s: Floats, route: Ints, ready_s: float, takes_s: float) -> float:
    """When a task on these links ends; `free_s`: when each link has served all tasks before it."""
    start_s = ready_s
    for link in route:
        if link >= 0:
            start_s = max(start_s, free_s[link])
    for link in route:
        if link >= 0:
            free_s[link] = start_s + takes_s
    return start_s + takes_s


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
