"""The lengths that a label keeps of the paths to it, and how an arc extends them."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import inlined
from stagecut.planner.network.allreduce_queues import NO_QUEUES, AllReduceQueues
from stagecut.planner.network.link_loads import (
    NO_ARC_LOADS,
    NO_LOADS,
    ArcLoads,
    LinkLoads,
    LoadLengths,
    arc_loads,
    load_row,
    loads_after,
)
from stagecut.planner.network.link_loads import START as NO_LOAD

ROUND_TRIP, FORWARD, LOOP, QUEUE, HOME, INTERFACE, FABRIC, SLOW_FORWARD = range(8)
SLOW_BACKWARD, BASE, LEFT, GAIN, BEGUN = range(8, 13)
"""The lengths of a label; with shared rows only the first ones."""
NUM_SHARED, NUM_LIMITED = 3, 8
"""Of how many there is a :mod:`latest <stagecut.planner.network.labels.latest>`: with all rows, the first eight."""
START = np.array([0.0, 0.0, -np.inf, 0.0, 0.0, *NO_LOAD, 0.0, 0.0, -np.inf, 0.0, 0.0, 0.0])


@inlined
def chosen_by(num_lengths: int) -> int:
    """The length of which the path found has the least: the way home, or the round trip if only shared rows count.

    The slowest stage leaves little time for the way home, on which all-reduces queue; the round trip, which is in it,
    is short where there are many micro-batches.
    """
    return HOME if num_lengths > NUM_SHARED else ROUND_TRIP


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
    comes before the loops + m theta, `GAIN` the seconds of one loop less theta for each micro-batch that it carries,
    and `LEFT` the least such gain of a shorter loop, zero or less, for what does not fill whole loops. Where loops grow
    by several micro-batches, a few may be left between two of them: `BASE` has them turn at the first stage. `BEGUN` is
    minus the warm-up depth of its first stage, on which theta depends: where windows mix, the largest depth, with the
    largest theta, has the least gain and the fewest loops.
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
    depth_step: int
    """By how much warm-up depths grow from stage to stage, and so the micro-batches of a loop of one more stage."""


NO_INTS, NO_FLOATS, NO_BOOLS = np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
NO_TURNS = Turns(NO_BOOLS, *(NO_FLOATS,) * 4, NO_INTS, NO_INTS, NO_BOOLS, NO_FLOATS, np.ones(1, np.int64), 0, 1)


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
    loads: LinkLoads = NO_LOADS
    turns: Turns = NO_TURNS
    limit: float = np.inf
    """T."""


class ArcTerms(NamedTuple):
    """What one arc adds to the lengths of a label, and its limits: the columns of the criteria at that arc."""

    round_trip: float
    forward: float
    loop: float
    limits: tuple[float, float, float]
    forward_limits: tuple[float, float, float]
    queue_limits: tuple[float, float, float]
    queue_to_home: float
    forward_to_home: float
    queue_to_queue: float
    forward_to_queue: float
    home_to_queue: float
    is_stage: bool
    slow_forward: float
    slow_backward: float
    first_less: float
    first_tail: float
    least_depth: int
    largest_depth: int
    begins_window: bool
    latest_fill: float
    num_microbatches: int
    depth_step: int
    limit: float
    loads: ArcLoads


class Step(NamedTuple):
    """From a label to a counted node."""

    label: int
    head: int


@inlined
def turns_here(terms: ArcTerms, depth: int) -> bool:
    """Whether an arc may be a stage of some depth."""
    return bool(terms.is_stage and terms.least_depth <= depth <= terms.largest_depth)


@inlined
def set_ways_to_turns(terms: ArcTerms, step: Step, ways_on: Floats, depths: Ints, ways: Floats) -> None:
    """Set the round trips from an arc to the stages of all depths but the first, which may be its own."""
    for turn in range(1, len(depths)):
        ways[turn] = terms.round_trip
        if not turns_here(terms, depths[turn]):
            ways[turn] += ways_on[step.head, turn]


@inlined
def limits_of(limits: Limits, arc: int) -> tuple[float, float, float]:
    """The limits of one arc."""
    return limits.alone[arc], limits.with_way_on[arc], limits.with_loop[arc]


@inlined
def terms_of(criteria: Criteria, arc: int) -> ArcTerms:
    """The terms of one arc, read once for all labels before it; without turns the first few only."""
    turns, queues = criteria.turns, criteria.queue.lengths
    if len(turns.is_stage) == 0:
        return ArcTerms(
            criteria.round_trip[arc],
            criteria.forward[arc],
            criteria.loop[arc],
            limits_of(criteria.round_trip_limits, arc),
            limits_of(criteria.forward_limits, arc),
            *((0.0, 0.0, 0.0), 0.0, 0.0, 0.0, 0.0, 0.0, False, 0.0, 0.0, 0.0, 0.0, 0, 0, False, 0.0, 0, 1, 0.0),
            NO_ARC_LOADS,
        )
    return ArcTerms(
        criteria.round_trip[arc],
        criteria.forward[arc],
        criteria.loop[arc],
        limits_of(criteria.round_trip_limits, arc),
        limits_of(criteria.forward_limits, arc),
        limits_of(criteria.queue.limits, arc),
        queues.queue_to_home[arc],
        queues.forward_to_home[arc],
        queues.queue_to_queue[arc],
        queues.forward_to_queue[arc],
        queues.home_to_queue[arc],
        turns.is_stage[arc],
        turns.forward[arc],
        turns.backward[arc],
        turns.first_less[arc],
        turns.first_tail[arc],
        turns.least_depth[arc],
        turns.largest_depth[arc],
        turns.windows[arc],
        turns.latest_fill[arc],
        turns.num_microbatches,
        turns.depth_step,
        criteria.limit,
        arc_loads(criteria.loads, arc),
    )


@inlined
def turned_after(terms: ArcTerms, rest: float, ways: Floats, depths: Ints, slow_forward: float) -> float:
    """From the start of the first forward of a stage to the end of its first backward, by the way of a later one.

    For a transfer, the way on, `rest`.
    """
    turned = rest
    if terms.is_stage:
        turned = max(rest + (depths[0] - 1) * slow_forward, terms.round_trip + (terms.least_depth - 1) * slow_forward)
        for turn in range(1, len(depths)):
            if terms.least_depth >= depths[turn]:
                turned = max(turned, ways[turn] + (depths[turn] - 1) * slow_forward)
    return turned


@inlined
def last_forward_after(terms: ArcTerms, loop: float, slow_forward: float) -> float:
    """From the start of the first forward of a stage to the start of its last one, `loop` being the largest so far."""
    return max(loop, (terms.num_microbatches - 1) * slow_forward - terms.first_less)


@inlined
def last_way(terms: ArcTerms, rest: float, slow_backward: float) -> float:
    """From the start of the last forward of a stage, less the way back from it, to the end.

    It is that of its own last backwards, or of the last micro-batch on the last stage.
    """
    own_s = terms.slow_forward + terms.slow_backward + terms.first_tail
    return max(own_s + (terms.least_depth - 1) * slow_backward, rest)


@inlined
def extend_shared(terms: ArcTerms, step: Step, lengths: Floats, way_on: float, after: Floats) -> bool:
    """Set the lengths of shared rows after an arc from those before it; False if it comes too late.

    `way_on` leads on from the arc's head.
    """
    round_trip, forward = lengths[step.label, ROUND_TRIP], lengths[step.label, FORWARD]
    rest = terms.round_trip + way_on
    loop = max(lengths[step.label, LOOP], rest + terms.loop)
    after[LOOP] = loop
    after[ROUND_TRIP] = round_trip + terms.round_trip
    after[FORWARD] = forward + terms.forward
    return not (_is_late(terms.limits, round_trip, rest, loop) or _is_late(terms.forward_limits, forward, rest, loop))


@inlined
def extend(
    terms: ArcTerms,
    step: Step,
    lengths: Floats,
    way_on: float,
    ways: Floats,
    depths: Ints,
    thetas: Floats,
    after: Floats,
) -> bool:
    """Set the lengths after an arc from those before it; False if it comes too late.

    `ways` lead from the arc to the stages of some depths, see :func:`set_ways_to_turns`. `thetas`, by warm-up depth of
    the first stage of a window, may be any that do not fall; see :class:`Turns`.
    """
    label = step.label
    rest, round_trip = terms.round_trip + way_on, lengths[label, ROUND_TRIP]
    home, forward, queue = lengths[label, HOME], lengths[label, FORWARD], lengths[label, QUEUE]
    slow_forward = max(lengths[label, SLOW_FORWARD], terms.slow_forward)
    slow_backward = max(lengths[label, SLOW_BACKWARD], terms.slow_backward)
    loop, base = lengths[label, LOOP], lengths[label, BASE]
    left, gain, begun = lengths[label, LEFT], lengths[label, GAIN], int(-lengths[label, BEGUN])
    loaded = LoadLengths(lengths[label, INTERFACE], lengths[label, FABRIC])
    turned, here = turned_after(terms, rest, ways, depths, slow_forward), -np.inf
    if terms.is_stage:
        loop = max(loop, turned + terms.loop)
        work, own_theta = terms.slow_forward + terms.slow_backward, thetas[terms.largest_depth]
        gain += work - terms.depth_step * thetas[begun]
        if gain >= 0:
            num_loops = (terms.num_microbatches - begun - 1) // max(1, begun - terms.least_depth + 1)
            loop = max(loop, base + left + num_loops * gain)
        left, own = min(left, gain), work - own_theta
        ahead = turned - terms.first_tail + (terms.num_microbatches - terms.largest_depth - 1) * own_theta
        ahead += (terms.depth_step - 1) * min(own, 0.0)
        if terms.begins_window and ahead + own + min(own, 0.0) > base + gain + left:
            base, left, gain, begun = ahead, min(own, 0.0), own, terms.largest_depth
        here = last_forward_after(terms, loop, slow_forward)
        if round_trip + here + last_way(terms, rest, slow_backward) > terms.limit or home + turned > terms.latest_fill:
            return False
    else:
        gain += 2 * terms.slow_forward
        if load_row(terms.loads, loaded, home) > terms.limit:
            return False
    if (
        _is_late(terms.limits, home, rest, here)
        or _is_late(terms.forward_limits, forward, turned, here)
        or _is_late(terms.queue_limits, queue, turned, here)
    ):
        return False
    after[ROUND_TRIP] = round_trip + terms.round_trip
    after[FORWARD] = forward + terms.forward
    after[LOOP] = loop
    after[QUEUE] = max(queue + terms.queue_to_queue, forward + terms.forward_to_queue, home + terms.home_to_queue)
    after[HOME] = max(home + terms.round_trip, queue + terms.queue_to_home, forward + terms.forward_to_home)
    after[SLOW_FORWARD], after[SLOW_BACKWARD] = slow_forward, slow_backward
    after[BASE], after[LEFT], after[GAIN], after[BEGUN] = base, left, gain, -begun
    loaded = loads_after(terms.loads, loaded, home, after[HOME])
    after[INTERFACE], after[FABRIC] = loaded.interface, loaded.fabric
    return True


@inlined
def _is_late(limits: tuple[float, float, float], length: float, way_on: float, loop: float) -> bool:
    return bool(length > limits[0] or length + way_on > limits[1] or length + loop > limits[2])
