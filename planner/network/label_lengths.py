"""The lengths that a label keeps of the paths to it, and how an arc extends them."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.compiled import inlined
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


class Step(NamedTuple):
    """One arc from a label to another; the label before is at `node` and `state`."""

    arc: int
    node: int
    state: int
    head: int
    state_after: int


@inlined
def turns_here(turns: Turns, arc: int, turn: int) -> bool:
    """Whether an arc may be the stage with some of the depths at which first backwards turn."""
    return bool(turns.is_stage[arc] and turns.least_depth[arc] <= turns.depths[turn] <= turns.largest_depth[arc])


@inlined
def extend(criteria: Criteria, step: Step, lengths: Floats, ways_on: Floats, theta: float, after: Floats) -> bool:
    """Set the lengths after an arc from those before it; False if it comes too late.

    `ways_on` leads on from every node. Any theta will do; see :class:`Turns`.
    """
    if len(criteria.turns.is_stage) > 0:
        return _extend_all(criteria, step, lengths, ways_on, theta, after)
    arc, node, state, head, state_after = step
    round_trip, forward = lengths[node, state, ROUND_TRIP], lengths[node, state, FORWARD]
    rest = criteria.round_trip[arc] + ways_on[0, head, state_after]
    loop = max(lengths[node, state, LOOP], rest + criteria.loop[arc])
    after[LOOP] = loop
    after[ROUND_TRIP] = round_trip + criteria.round_trip[arc]
    after[FORWARD] = forward + criteria.forward[arc]
    return not (
        _is_late(arc, criteria.round_trip_limits, round_trip, rest, loop)
        or _is_late(arc, criteria.forward_limits, forward, rest, loop)
    )


@inlined
def _extend_all(criteria: Criteria, step: Step, lengths: Floats, ways_on: Floats, theta: float, after: Floats) -> bool:
    """Set the lengths after an arc from those before it; False if it comes too late."""
    arc, node, state, head, state_after = step
    turns, round_trip = criteria.turns, criteria.round_trip[arc]
    rest = round_trip + ways_on[0, head, state_after]
    home, forward, queue = lengths[node, state, HOME], lengths[node, state, FORWARD], lengths[node, state, QUEUE]
    slow_forward = max(lengths[node, state, SLOW_FORWARD], turns.forward[arc])
    slow_backward = max(lengths[node, state, SLOW_BACKWARD], turns.backward[arc])
    loop, base = lengths[node, state, LOOP], lengths[node, state, BASE]
    left, gain = lengths[node, state, LEFT], lengths[node, state, GAIN]
    turned, here, last, filled = rest, -np.inf, -np.inf, -np.inf
    if turns.is_stage[arc]:
        turned = _first_turn(turns, step, round_trip, ways_on, slow_forward)
        loop = max(loop, turned + criteria.loop[arc])
        own = turns.forward[arc] + turns.backward[arc] - theta
        gain += own
        if gain >= 0:
            loop = max(loop, base + left + gain)
        left = min(left, gain)
        ahead = turned - turns.first_tail[arc] + (turns.num_microbatches - turns.largest_depth[arc] - 1) * theta
        if turns.windows[arc] and ahead + own + min(own, 0.0) > base + gain + left:
            base, left, gain = ahead, min(own, 0.0), own
        here = max(loop, (turns.num_microbatches - 1) * slow_forward - turns.first_less[arc])
        own_turn = turns.forward[arc] + turns.backward[arc] + turns.first_tail[arc]
        last = lengths[node, state, ROUND_TRIP] + here + own_turn + (turns.least_depth[arc] - 1) * slow_backward
        filled = home + turned
    else:
        gain += 2 * turns.forward[arc]
    queues, known = criteria.queue.lengths, Lengths(home, forward, queue)
    after[ROUND_TRIP] = lengths[node, state, ROUND_TRIP] + round_trip
    after[FORWARD] = forward + criteria.forward[arc]
    after[LOOP] = loop
    after[QUEUE] = queue_after(queues, arc, known)
    after[HOME] = max(home + round_trip, home_of_queue(queues, arc, known))
    after[SLOW_FORWARD], after[SLOW_BACKWARD] = slow_forward, slow_backward
    after[BASE], after[LEFT], after[GAIN] = base, left, gain
    return not (
        last > turns.limit
        or filled > turns.latest_fill[arc]
        or _is_late(arc, criteria.round_trip_limits, home, rest, here)
        or _is_late(arc, criteria.forward_limits, forward, turned, here)
        or _is_late(arc, criteria.queue.limits, queue, turned, here)
    )


@inlined
def _first_turn(turns: Turns, step: Step, round_trip: float, ways_on: Floats, slow_s: float) -> float:
    """From the start of the first forward of a stage to the end of its first backward, by the way of a later stage."""
    arc, _, _, head, state_after = step
    turned = max(
        round_trip + ways_on[0, head, state_after] + (turns.depths[0] - 1) * slow_s,
        round_trip + (turns.least_depth[arc] - 1) * slow_s,
    )
    for turn in range(1, len(turns.depths)):
        if turns.least_depth[arc] >= turns.depths[turn]:
            way = 0.0 if turns_here(turns, arc, turn) else ways_on[turn, head, state_after]
            turned = max(turned, round_trip + way + (turns.depths[turn] - 1) * slow_s)
    return float(turned)


@inlined
def _is_late(arc: int, limits: Limits, length: float, way_on: float, loop: float) -> bool:
    return bool(
        length > limits.alone[arc] or length + way_on > limits.with_way_on[arc] or length + loop > limits.with_loop[arc]
    )
