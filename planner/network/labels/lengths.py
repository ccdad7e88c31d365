"""The lengths that a label keeps of the paths to it, and how an arc extends them."""

from typing import NamedTuple, Protocol, get_type_hints

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled, inlined
from stagecut.planner.network.allreduce_queues import NO_QUEUES, AllReduceQueues
from stagecut.planner.network.labels.crossings import NO_HOST, HostLengths, Leaving, crossing_row
from stagecut.planner.network.link_loads import (
    NO_LOADS,
    ArcLoads,
    LinkLoads,
    LoadLengths,
    load_row,
    loads_after,
)
from stagecut.planner.network.link_loads import START as NO_LOAD

ROUND_TRIP, FORWARD, LOOP, QUEUE, HOME, INTERFACE, FABRIC, SLOW_FORWARD = range(8)
SLOW_BACKWARD, PAIR, BASE, LEFT, GAIN, BEGUN, OUTWARD, HOST = range(8, 16)
"""The lengths of a label; with shared rows only the first ones. From the last one on they are its `HostLengths`."""
NUM_SHARED, NUM_LIMITED = 3, 8
"""Of how many there is a :mod:`latest <stagecut.planner.network.labels.latest>`: with all rows, the first eight."""
START = np.array([0.0, 0.0, -np.inf, 0.0, 0.0, *NO_LOAD, 0.0, 0.0, -np.inf, -np.inf, 0.0, 0.0, 0.0, -np.inf, *NO_HOST])


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
    largest theta, has the least gain and the fewest loops. Besides, `PAIR` is the sum of the loops of the last stage
    with the next one, as far as it is known.
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
    own_pairs: Ints
    """Loops of a stage with the next one; negative if there may be none."""
    pairs: Ints
    """Loops of the stage before with this one, and of those before and after a transfer."""
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
NO_TURNS = Turns(NO_BOOLS, *(NO_FLOATS,) * 4, *(NO_INTS,) * 4, NO_BOOLS, NO_FLOATS, np.ones(1, np.int64), 0, 1)


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


class ArcTerms(Protocol):
    """What one arc adds to the lengths of a label, and its limits: a record with the columns of the criteria there."""

    round_trip: float
    forward: float
    loop: float
    alone: float
    with_way_on: float
    with_loop: float
    forward_alone: float
    forward_with_way_on: float
    forward_with_loop: float
    queue_alone: float
    queue_with_way_on: float
    queue_with_loop: float
    queue_to_home: float
    forward_to_home: float
    queue_to_queue: float
    forward_to_queue: float
    home_to_queue: float
    slow_forward: float
    slow_backward: float
    first_less: float
    first_tail: float
    latest_fill: float
    limit: float
    to_interface: float
    home_to_interface: float
    to_fabric: float
    home_to_fabric: float
    after_interface: float
    after_fabric: float
    after_home: float
    to_outward: float
    crossing: float
    least_depth: int
    largest_depth: int
    first_turn: int
    end_turn: int
    num_microbatches: int
    depth_step: int
    own_pairs: int
    pairs: int
    is_stage: bool
    begins_window: bool


TERMS = np.dtype(list(get_type_hints(ArcTerms).items()))


@compiled
def set_terms(criteria: Criteria, arc: int, terms: ArcTerms) -> None:
    """Set the terms to those of one arc, read once for all labels before it; without turns the first few only."""
    limits, forward_limits, turns = criteria.round_trip_limits, criteria.forward_limits, criteria.turns
    terms.round_trip = criteria.round_trip[arc]
    terms.forward = criteria.forward[arc]
    terms.loop = criteria.loop[arc]
    terms.alone, terms.with_way_on = limits.alone[arc], limits.with_way_on[arc]
    terms.with_loop = limits.with_loop[arc]
    terms.forward_alone, terms.forward_with_way_on = forward_limits.alone[arc], forward_limits.with_way_on[arc]
    terms.forward_with_loop = forward_limits.with_loop[arc]
    if len(turns.is_stage) == 0:
        return
    queues, queue_limits, loads = criteria.queue.lengths, criteria.queue.limits, criteria.loads
    terms.queue_alone, terms.queue_with_way_on = queue_limits.alone[arc], queue_limits.with_way_on[arc]
    terms.queue_with_loop = queue_limits.with_loop[arc]
    terms.queue_to_home = queues.queue_to_home[arc]
    terms.forward_to_home = queues.forward_to_home[arc]
    terms.queue_to_queue = queues.queue_to_queue[arc]
    terms.forward_to_queue = queues.forward_to_queue[arc]
    terms.home_to_queue = queues.home_to_queue[arc]
    terms.is_stage = turns.is_stage[arc]
    terms.slow_forward = turns.forward[arc]
    terms.slow_backward = turns.backward[arc]
    terms.first_less = turns.first_less[arc]
    terms.first_tail = turns.first_tail[arc]
    terms.least_depth = turns.least_depth[arc]
    terms.largest_depth = turns.largest_depth[arc]
    terms.first_turn, terms.end_turn = turns_here(turns, arc)
    terms.begins_window = turns.windows[arc]
    terms.latest_fill = turns.latest_fill[arc]
    terms.num_microbatches = turns.num_microbatches
    terms.depth_step = turns.depth_step
    terms.own_pairs, terms.pairs = turns.own_pairs[arc], turns.pairs[arc]
    terms.limit = criteria.limit
    terms.to_interface = loads.to_interface[arc]
    terms.home_to_interface = loads.home_to_interface[arc]
    terms.to_fabric = loads.to_fabric[arc]
    terms.home_to_fabric = loads.home_to_fabric[arc]
    terms.after_interface = loads.after_interface[arc]
    terms.after_fabric = loads.after_fabric[arc]
    terms.after_home = loads.after_home[arc]
    terms.to_outward, terms.crossing = loads.to_outward[arc], loads.crossing[arc]


@inlined
def loads_of(terms: ArcTerms) -> ArcLoads:
    """What an arc adds to the loads of links."""
    return ArcLoads(
        terms.to_interface,
        terms.home_to_interface,
        terms.to_fabric,
        terms.home_to_fabric,
        terms.after_interface,
        terms.after_fabric,
        terms.after_home,
    )


@inlined
def turns_here(turns: Turns, arc: int) -> tuple[int, int]:
    """The range of depths, without the first, of which an arc may be a stage."""
    begin, end = 1, 1
    if len(turns.depths) > 1 and turns.is_stage[arc]:
        while begin < len(turns.depths) and turns.depths[begin] < turns.least_depth[arc]:
            begin += 1
        end = begin
        while end < len(turns.depths) and turns.depths[end] <= turns.largest_depth[arc]:
            end += 1
    return begin, end


@inlined
def lower_ways(length: float, here: tuple[int, int], ways_on: Floats, ways: Floats) -> None:
    """Lower the round trips to the stages of all depths to those over an arc, which may be such a stage itself."""
    for turn in range(len(ways)):
        ways[turn] = min(ways[turn], length + ways_on[turn])
    for turn in range(here[0], here[1]):
        ways[turn] = min(ways[turn], length)


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


@compiled
def extend_shared(terms: ArcTerms, before: Floats, way_on: float, after: Floats) -> bool:
    """Set the lengths of shared rows after an arc from those before it; False if it comes too late.

    `way_on` leads on from the arc's head.
    """
    round_trip, forward, rest = before[ROUND_TRIP], before[FORWARD], terms.round_trip + way_on
    loop = max(before[LOOP], rest + terms.loop)
    after[LOOP] = loop
    after[ROUND_TRIP] = round_trip + terms.round_trip
    after[FORWARD] = forward + terms.forward
    return not (
        _is_late(terms.alone, terms.with_way_on, terms.with_loop, round_trip, rest, loop)
        or _is_late(terms.forward_alone, terms.forward_with_way_on, terms.forward_with_loop, forward, rest, loop)
    )


@compiled
def extend(
    terms: ArcTerms,
    before: Floats,
    ways_on: Floats,
    depths: Ints,
    thetas: Floats,
    ways: Floats,
    after: Floats,
) -> bool:
    """Set the lengths after an arc from those before it; False if it comes too late.

    `ways_on` lead from the arc's head to the stages of some depths, the first of them the last stage. Of the others
    each gets its way from the arc, which may be such a stage itself. `thetas`, by warm-up depth of the first stage of a
    window, may be any that do not fall; see :class:`Turns`.
    """
    for turn in range(len(ways)):
        ways[turn] = np.inf
    lower_ways(terms.round_trip, (terms.first_turn, terms.end_turn), ways_on, ways)
    rest, round_trip = terms.round_trip + ways_on[0], before[ROUND_TRIP]
    home, forward, queue = before[HOME], before[FORWARD], before[QUEUE]
    slow_forward = max(before[SLOW_FORWARD], terms.slow_forward)
    slow_backward = max(before[SLOW_BACKWARD], terms.slow_backward)
    loop, pair, base = before[LOOP], before[PAIR], before[BASE]
    left, gain, begun = before[LEFT], before[GAIN], int(-before[BEGUN])
    loaded = LoadLengths(before[INTERFACE], before[FABRIC])
    turned, here = turned_after(terms, rest, ways, depths, slow_forward), -np.inf
    if terms.is_stage:
        loop = max(loop, turned + terms.loop)
        work, own_theta = terms.slow_forward + terms.slow_backward, thetas[terms.largest_depth]
        loop = max(loop, pair + terms.pairs * work)
        pair = turned - terms.first_tail + terms.own_pairs * work if terms.own_pairs >= 0 else -np.inf
        gain += work - terms.depth_step * thetas[begun]
        # Loops that win nothing are at most as many as those of two stages.
        first_depth = begun if gain >= 0 else terms.least_depth + terms.depth_step
        num_loops = (terms.num_microbatches - first_depth - 1) // max(1, first_depth - terms.least_depth + 1)
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
        pair += terms.pairs * 2 * terms.slow_forward
        gain += 2 * terms.slow_forward
        if load_row(loads_of(terms), loaded, home) > terms.limit:
            return False
    if (
        _is_late(terms.alone, terms.with_way_on, terms.with_loop, home, rest, here)
        or _is_late(terms.forward_alone, terms.forward_with_way_on, terms.forward_with_loop, forward, turned, here)
        or _is_late(terms.queue_alone, terms.queue_with_way_on, terms.queue_with_loop, queue, turned, here)
    ):
        return False
    if not terms.is_stage and _largest_of_few(terms, before, ways_on[0]) > terms.limit:
        return False
    after[ROUND_TRIP] = round_trip + terms.round_trip
    after[FORWARD] = forward + terms.forward
    after[LOOP] = loop
    after[QUEUE] = max(queue + terms.queue_to_queue, forward + terms.forward_to_queue, home + terms.home_to_queue)
    after[HOME] = max(home + terms.round_trip, queue + terms.queue_to_home, forward + terms.forward_to_home)
    after[SLOW_FORWARD], after[SLOW_BACKWARD] = slow_forward, slow_backward
    after[PAIR], after[BASE], after[LEFT], after[GAIN], after[BEGUN] = pair, base, left, gain, -begun
    loaded = loads_after(loads_of(terms), loaded, home, after[HOME])
    after[INTERFACE], after[FABRIC] = loaded.interface, loaded.fabric
    _take_host_further(terms, before, after)
    return True


@inlined
def _largest_of_few(terms: ArcTerms, before: Floats, way_on: float) -> float:
    """The larger of the rows of some messages on the links of a transfer: of activations alone, and of crossing ones.

    `way_on` leads on from its head.
    """
    row = before[OUTWARD] + terms.to_outward + way_on
    if terms.crossing > -np.inf:
        leaving = Leaving(
            before[ROUND_TRIP],
            before[HOME],
            before[SLOW_FORWARD],
            before[SLOW_BACKWARD],
            terms.slow_forward,
            terms.round_trip + way_on,
        )
        row = max(row, crossing_row(_host_of(before), leaving, terms.num_microbatches))
    return float(row)


@inlined
def _host_of(lengths: Floats) -> HostLengths:
    return HostLengths(
        lengths[HOST], lengths[HOST + 1], lengths[HOST + 2], lengths[HOST + 3], lengths[HOST + 4], lengths[HOST + 5]
    )


@inlined
def _take_host_further(terms: ArcTerms, before: Floats, after: Floats) -> None:
    """Set the lengths of the current host and island after an arc; those of the whole path are set."""
    after[OUTWARD] = before[OUTWARD] + terms.to_outward
    if terms.is_stage:
        after[OUTWARD] = max(after[OUTWARD], after[HOME])
    host = before[HOST], before[HOST + 1], before[HOST + 2], before[HOST + 3]
    forward, backward = before[HOST + 4] + terms.forward, before[HOST + 5] + terms.slow_backward
    if terms.crossing > -np.inf:
        host = before[ROUND_TRIP], before[SLOW_FORWARD], before[SLOW_BACKWARD], terms.slow_forward
        forward = backward = 0.0
    after[HOST], after[HOST + 1], after[HOST + 2], after[HOST + 3] = host
    after[HOST + 4], after[HOST + 5] = forward, backward


@inlined
def _is_late(alone: float, with_way_on: float, with_loop: float, length: float, way_on: float, loop: float) -> bool:
    """Whether a length is beyond one of its limits, see :class:`Limits`."""
    return bool(length > alone or length + way_on > with_way_on or length + loop > with_loop)
