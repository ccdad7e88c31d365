"""The lengths that a label keeps of the paths to it, and how an arc extends them."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.compiled import compiled
from stagecut.planner.network.allreduce_queues import NO_QUEUES, AllReduceQueues, Lengths, home_of_queue, queue_after

ROUND_TRIP, FORWARD, LOOP, QUEUE, HOME, SLOW_FORWARD, SLOW_BACKWARD, BASE, LEFT, GAIN = range(10)
"""The lengths of a label; with shared rows only the first ones."""
NUM_SHARED = 3
START = np.array([0.0, 0.0, -np.inf, 0.0, 0.0, 0.0, 0.0, -np.inf, 0.0, 0.0])


class Limits(NamedTuple):
    """Largest length of a path before an arc at which the arc may still be taken; each of shape (A,)."""

    alone: Floats
    """Limit of the length itself."""
    with_way_on: Floats
    """Limit of the length plus the way on from the arc."""
    with_loop: Floats
    """Limit of the length plus the largest loop up to the arc."""


class QueueCriteria(NamedTuple):
    """What arcs add to the lengths with queues, and the limits of the queue."""

    lengths: AllReduceQueues
    limits: Limits


NO_QUEUE = QueueCriteria(NO_QUEUES, Limits(np.empty(0), np.empty(0), np.empty(0)))


class Turns(NamedTuple):
    """What turns and loops need of the arcs, shape (A,) unless stated; see :mod:`stagecut.planner.simulator.turns`.

    A *window* is a run of stages whose loops a label follows: with theta, a time per micro-batch, its `BASE` is what
    comes before the loops + m theta, `GAIN` the seconds of one loop less theta for each of its stages, and `LEFT` the
    least such gain of a shorter loop, zero or less, for what does not fill whole loops.
    """

    is_stage: Bools
    forward: Floats
    """F of a stage, c of a transfer."""
    backward: Floats
    """B of a stage, c of a transfer."""
    first_less: Floats
    """F less its first part."""
    first_tail: Floats
    """g of the first stage, zero elsewhere."""
    least_depth: Ints
    largest_depth: Ints
    windows: Bools
    """Stages with room for at least one loop of every window that begins there."""
    latest_fill: Floats
    """T less what a fill row adds to the way before and the way on."""
    depths: Ints
    """Warm-up depths from the last stage on, of the stages where first backwards may turn, shape (turns,)."""
    num_microbatches: int
    limit: float
    """T."""


NO_INTS, NO_FLOATS, NO_BOOLS = np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
NO_TURNS = Turns(NO_BOOLS, *(NO_FLOATS,) * 4, NO_INTS, NO_INTS, NO_BOOLS, NO_FLOATS, np.ones(1, np.int64), 0, 0.0)


class Criteria(NamedTuple):
    """What arcs cost, and how long a path may be where it takes an arc; arrays of shape (A,).

    A label holds the least of each of its lengths, which need not be the same path's. The *way on* from an arc is the
    least round trip from its tail to the sink over usable arcs and the hosts left.
    """

    round_trip: Floats
    forward: Floats
    loop: Floats
    """The loop of an arc is this plus the way on from it; minus infinity for none."""
    round_trip_limits: Limits
    forward_limits: Limits
    queue: QueueCriteria = NO_QUEUE
    turns: Turns = NO_TURNS


@compiled
def way_to_turn(turns: Turns, arc: int, turn: int, length: float, way_on: float) -> float:
    """Round trip from an arc to the stage of some depth, which may be its own."""
    may_be = turns.is_stage[arc] and turns.least_depth[arc] <= turns.depths[turn] <= turns.largest_depth[arc]
    return float(length if may_be else length + way_on)


@compiled
def extend(criteria: Criteria, arc: int, before: Floats, ways_on: Floats, theta: float, after: Floats) -> bool:
    """Set the lengths after an arc from those before it; False if it comes too late.

    `ways_on` leads on from the arc's head. Any theta will do; see :class:`Turns`.
    """
    if len(criteria.turns.is_stage) > 0:
        return _extend_all(criteria, arc, before, ways_on, theta, after)
    rest = criteria.round_trip[arc] + ways_on[0]
    after[LOOP] = max(before[LOOP], rest + criteria.loop[arc])
    after[ROUND_TRIP] = before[ROUND_TRIP] + criteria.round_trip[arc]
    after[FORWARD] = before[FORWARD] + criteria.forward[arc]
    return not (
        _is_late(arc, criteria.round_trip_limits, before[ROUND_TRIP], rest, after[LOOP])
        or _is_late(arc, criteria.forward_limits, before[FORWARD], rest, after[LOOP])
    )


@compiled
def _extend_all(criteria: Criteria, arc: int, before: Floats, ways_on: Floats, theta: float, after: Floats) -> bool:
    """Set the lengths after an arc from those before it; False if it comes too late."""
    turns, round_trip = criteria.turns, criteria.round_trip[arc]
    rest = round_trip + ways_on[0]
    slow_forward = max(before[SLOW_FORWARD], turns.forward[arc])
    slow_backward = max(before[SLOW_BACKWARD], turns.backward[arc])
    turned, loop, base, left, gain = rest, before[LOOP], before[BASE], before[LEFT], before[GAIN]
    here = -np.inf
    if turns.is_stage[arc]:
        turned = _first_turn(turns, arc, round_trip, ways_on, slow_forward)
        loop = max(loop, turned + criteria.loop[arc])
        gain += turns.forward[arc] + turns.backward[arc] - theta
        if gain >= 0:
            loop = max(loop, base + left + gain)
        left = min(left, gain)
        own = turns.forward[arc] + turns.backward[arc] - theta
        ahead = turned - turns.first_tail[arc] + (turns.num_microbatches - turns.largest_depth[arc] - 1) * theta
        if turns.windows[arc] and ahead + own + min(own, 0.0) > base + gain + left:
            base, left, gain = ahead, min(own, 0.0), own
        here = max(loop, (turns.num_microbatches - 1) * slow_forward - turns.first_less[arc])
        own_turn = turns.forward[arc] + turns.backward[arc] + turns.first_tail[arc]
        last = before[ROUND_TRIP] + here + own_turn + (turns.least_depth[arc] - 1) * slow_backward
        if last > turns.limit or before[HOME] + turned > turns.latest_fill[arc]:
            return False
    else:
        gain += 2 * turns.forward[arc]
    if (
        _is_late(arc, criteria.round_trip_limits, before[HOME], rest, here)
        or _is_late(arc, criteria.forward_limits, before[FORWARD], turned, here)
        or _is_late(arc, criteria.queue.limits, before[QUEUE], turned, here)
    ):
        return False
    queues, known = criteria.queue.lengths, Lengths(before[HOME], before[FORWARD], before[QUEUE])
    after[ROUND_TRIP] = before[ROUND_TRIP] + round_trip
    after[FORWARD] = before[FORWARD] + criteria.forward[arc]
    after[LOOP] = loop
    after[QUEUE] = queue_after(queues, arc, known)
    after[HOME] = max(before[HOME] + round_trip, home_of_queue(queues, arc, known))
    after[SLOW_FORWARD], after[SLOW_BACKWARD] = slow_forward, slow_backward
    after[BASE], after[LEFT], after[GAIN] = base, left, gain
    return True


@compiled
def _first_turn(turns: Turns, arc: int, round_trip: float, ways_on: Floats, slow_s: float) -> float:
    """From the start of the first forward of a stage to the end of its first backward, by the way of a later stage."""
    turned = max(
        round_trip + ways_on[0] + (turns.depths[0] - 1) * slow_s, round_trip + (turns.least_depth[arc] - 1) * slow_s
    )
    for turn in range(1, len(turns.depths)):
        if turns.least_depth[arc] >= turns.depths[turn]:
            way = way_to_turn(turns, arc, turn, round_trip, ways_on[turn])
            turned = max(turned, way + (turns.depths[turn] - 1) * slow_s)
    return float(turned)


@compiled
def _is_late(arc: int, limits: Limits, length: float, way_on: float, loop: float) -> bool:
    return bool(
        length > limits.alone[arc] or length + way_on > limits.with_way_on[arc] or length + loop > limits.with_loop[arc]
    )
