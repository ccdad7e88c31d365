"""The lengths that a label keeps of the paths to it, and how an arc extends them."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled, inlined
from stagecut.planner.network.labels.arc_terms import ArcTerms, loads_of, passages_of
from stagecut.planner.network.labels.criteria import NUM_PASSAGES
from stagecut.planner.network.labels.crossings import NO_HOST, HostLengths, Leaving, crossing_row
from stagecut.planner.network.link_loads import START as NO_LOAD
from stagecut.planner.network.link_loads import LoadLengths, load_row, loads_after

ROUND_TRIP, FORWARD, LOOP, QUEUE, HOME, INTERFACE, FABRIC, SLOW_FORWARD = range(8)
LAST_ROUND_TRIP, LAST_FORWARD, LAST_QUEUE, LAST_HOME = range(8, 12)
PASSAGES, ON_FABRIC = range(12, 12 + 2 * NUM_PASSAGES, NUM_PASSAGES)
NUM_SHARED, NUM_LIMITED = 3, ON_FABRIC + NUM_PASSAGES
SLOW_BACKWARD, PAIR, BASE, LEFT, GAIN, BEGUN, OUTWARD, HOST = range(NUM_LIMITED, NUM_LIMITED + 8)
"""The lengths of a label; with shared rows only the first `NUM_SHARED`. From `HOST` on they are its `HostLengths`.

The `LAST` ones are those of the last micro-batch, which begins a stage later than the first one by the largest loop so
far: the least of their sums, where the sum of the least may be that of two paths. `PASSAGES` are, for several numbers
of micro-batches, by how much these delay the last of them on any shared fabric so far, `ON_FABRIC` on the current one.

Of the first `NUM_LIMITED` there is a :mod:`latest <stagecut.planner.network.labels.latest>`.
"""
_NEVER = -np.inf
_LAST, _PASSED = (_NEVER,) * 4, (0.0,) * (2 * NUM_PASSAGES)
_LIMITED = (0.0, 0.0, _NEVER, 0.0, 0.0, *NO_LOAD, 0.0, *_LAST, *_PASSED)
START = np.array([*_LIMITED, 0.0, _NEVER, _NEVER, 0.0, 0.0, 0.0, _NEVER, *NO_HOST])


@inlined
def chosen_by(num_lengths: int) -> int:
    """The length of which the path found has the least: the way home, or the round trip if only shared rows count.

    The slowest stage leaves little time for the way home, on which all-reduces queue; the round trip, which is in it,
    is short where there are many micro-batches.
    """
    return HOME if num_lengths > NUM_SHARED else ROUND_TRIP


@inlined
def lower_ways(length: float, here: tuple[int, int], ways_on: Floats, ways: Floats) -> None:
    """Lower the round trips to the stages of all depths to those over an arc, which may be such a stage itself."""
    for turn in range(len(ways)):
        ways[turn] = np.minimum(length + ways_on[turn], ways[turn])
    for turn in range(here[0], here[1]):
        ways[turn] = np.minimum(length, ways[turn])


@inlined
def passage_before(terms: ArcTerms, lengths: Floats, slow_forward: float) -> float:
    """By how much the forwards of a stage before its first backward delay the last of them; from lengths at the stage.

    They pass the slowest forward or message one after another, and the shared fabrics.
    """
    passage = (terms.least_depth - 1) * slow_forward
    if terms.num_passages > 0:
        passage = max(passage, lengths[PASSAGES + terms.num_passages - 1])
    return float(passage)


@inlined
def turned_after(
    terms: ArcTerms, rest: float, ways: Floats, depths: Ints, before: Floats, slow_forward: float
) -> float:
    """From the start of the first forward of a stage to the end of its first backward, on its own or by a later one.

    For a transfer, the way on, `rest`.
    """
    turned = rest
    if terms.is_stage:
        own = terms.round_trip + passage_before(terms, before, slow_forward)
        turned = max(rest + (depths[0] - 1) * slow_forward, own)
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
        _is_late(terms.alone, terms.with_way_on, terms.with_loop, round_trip, rest, round_trip + loop)
        or _is_late(
            terms.forward_alone, terms.forward_with_way_on, terms.forward_with_loop, forward, rest, forward + loop
        )
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
    window, may be any that do not fall; see :class:`~stagecut.planner.network.labels.criteria.Turns`.
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
    last_round_trip, last_forward = before[LAST_ROUND_TRIP], before[LAST_FORWARD]
    last_queue, last_home = before[LAST_QUEUE], before[LAST_HOME]
    loaded = LoadLengths(before[INTERFACE], before[FABRIC])
    turned = turned_after(terms, rest, ways, depths, before, slow_forward)
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
        last_round_trip, last_forward = max(last_round_trip, round_trip + here), max(last_forward, forward + here)
        last_queue, last_home = max(last_queue, queue + here), max(last_home, home + here)
        if last_round_trip + last_way(terms, rest, slow_backward) > terms.limit or home + turned > terms.latest_fill:
            return False
    else:
        pair += terms.pairs * 2 * terms.slow_forward
        gain += 2 * terms.slow_forward
        if load_row(loads_of(terms), loaded, home) > terms.limit:
            return False
    if (
        _is_late(terms.alone, terms.with_way_on, terms.with_loop, home, rest, last_home)
        or _is_late(
            terms.forward_alone, terms.forward_with_way_on, terms.forward_with_loop, forward, turned, last_forward
        )
        or _is_late(terms.queue_alone, terms.queue_with_way_on, terms.queue_with_loop, queue, turned, last_queue)
    ):
        return False
    if not terms.is_stage and _largest_of_few(terms, before, ways_on[0]) > terms.limit:
        return False
    after[ROUND_TRIP], after[LOOP] = round_trip + terms.round_trip, loop
    after[FORWARD], after[QUEUE], after[HOME] = take_home_further(terms, forward, queue, home)
    after[SLOW_FORWARD], after[SLOW_BACKWARD] = slow_forward, slow_backward
    after[PAIR], after[BASE], after[LEFT], after[GAIN], after[BEGUN] = pair, base, left, gain, -begun
    loaded = loads_after(loads_of(terms), loaded, home, after[HOME])
    after[INTERFACE], after[FABRIC] = loaded.interface, loaded.fabric
    _take_host_further(terms, before, after)
    _take_passages_further(terms, before, after)
    after[LAST_ROUND_TRIP] = last_round_trip + terms.round_trip
    last = take_home_further(terms, last_forward, last_queue, last_home)
    after[LAST_FORWARD], after[LAST_QUEUE], after[LAST_HOME] = last
    return bool(after[LAST_HOME] + ways_on[0] <= terms.limit)


@inlined
def take_home_further(terms: ArcTerms, forward: float, queue: float, home: float) -> tuple[float, float, float]:
    """Forward part, queue and way home after an arc from those before it."""
    return (
        forward + terms.forward,
        max(queue + terms.queue_to_queue, forward + terms.forward_to_queue, home + terms.home_to_queue),
        max(home + terms.round_trip, queue + terms.queue_to_home, forward + terms.forward_to_home),
    )


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
def _take_passages_further(terms: ArcTerms, before: Floats, after: Floats) -> None:
    """Set how much later than alone the last of several micro-batches comes through an arc.

    On a fabric it waits for the messages of all of them over each boundary there, less what its stages compute between.
    """
    to_passages = passages_of(terms)
    for which in range(NUM_PASSAGES):
        after[ON_FABRIC + which] = max(0.0, before[ON_FABRIC + which] + to_passages[which])
        after[PASSAGES + which] = max(before[PASSAGES + which], after[ON_FABRIC + which])


@inlined
def _is_late(alone: float, with_way_on: float, with_loop: float, length: float, way_on: float, last: float) -> bool:
    """Whether a length, or that of the last micro-batch, is beyond one of its limits, see :class:`Limits`."""
    return bool(length > alone or length + way_on > with_way_on or last > with_loop)
