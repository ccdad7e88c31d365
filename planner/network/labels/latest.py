"""How long a label may be at a counted node for some way on from there to be in time: labels from the other end.

A label keeps the least of each length of the ways to a node. From the sink back, each counted node gets the *latest* of
each length: the most that any way on leaves in time, where the other lengths are those of the label. A plan below T is
no longer at any of its nodes: every limit on its way on holds with its own lengths, none of which is below the label's.
So labels that are too long lead nowhere, arcs that only such labels take are left out, and of the ways on that are left
the least round trip is longer.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled, inlined
from stagecut.planner.core.numerics.tolerances import LABEL_SUM
from stagecut.planner.network.labels.arc_terms import ArcTerms, passages_of
from stagecut.planner.network.labels.counted_nodes import NONE, after_arc
from stagecut.planner.network.labels.criteria import NUM_PASSAGES
from stagecut.planner.network.labels.lengths import (
    FABRIC,
    FORWARD,
    HOME,
    INTERFACE,
    LAST_FORWARD,
    LAST_HOME,
    LAST_QUEUE,
    LAST_ROUND_TRIP,
    LOOP,
    NUM_LIMITED,
    ON_FABRIC,
    PASSAGES,
    QUEUE,
    ROUND_TRIP,
    SLOW_BACKWARD,
    SLOW_FORWARD,
    extend,
    last_forward_after,
    last_way,
    lower_ways,
    turned_after,
)
from stagecut.planner.network.labels.sweep import Labels, Sweep, part_of


@compiled
def in_time(after: Floats, latest: Floats) -> bool:
    """Whether no length is beyond the latest of some part of the ways on from a node, shape (parts, lengths)."""
    for part in range(len(latest)):
        late = False
        for length in range(NUM_LIMITED):
            late |= after[length] > latest[part, length]
        if not late:
            return True
    return False


@compiled
def set_latest(sweep: Sweep, labels: Labels, latest_home: Floats, latest: Floats, possible: Bools) -> None:
    """Set the latest lengths, the ways on, and which arcs are taken in time, from labels.

    `latest`, shape (C, parts, limited lengths), has those of each part of the ways on, by how much less time they leave
    for the way home than `latest_home`, shape (C,), what some way on left before. They are infinite at the sink, in one
    part, and minus infinity where there is no way on.
    """
    sweep, labels, latest = borrowed((sweep, labels, latest))
    arcs, nodes, (after, most, ways), depths = sweep.arcs, sweep.nodes, sweep.room, sweep.criteria.turns.depths
    lengths, ways_on, num_parts, limit = labels.lengths, nodes.ways_on, latest.shape[1], sweep.criteria.limit
    # Sums from the sink and from the source differ by rounding.
    slack = LABEL_SUM * limit if limit < np.inf else 0.0
    latest[:] = -np.inf
    latest[nodes.first[-2] :, 0] = np.inf
    ways_on[: nodes.first[-2]] = np.inf
    for arc in arcs.order[::-1]:
        terms, node = sweep.terms[arc], arcs.tail[arc]
        for here in range(nodes.first[node], nodes.first[node + 1]):
            if labels.arc[here] == NONE:
                continue
            head = after_arc(arcs, sweep.openings, nodes.number, arc, nodes.state[here])
            if head == NONE or ways_on[head, 0] == np.inf:
                continue
            if not extend(terms, lengths[here], ways_on[head], depths, sweep.thetas, ways, after):
                continue
            is_taken = False
            for part in range(num_parts):
                if not in_time(after, latest[head, part : part + 1]):
                    continue
                is_taken = True
                _set_most(terms, lengths[here], after, latest[head, part], ways_on[head, 0], ways, depths, most)
                to = part_of(latest_home[here] - most[HOME], num_parts, limit)
                for length in range(NUM_LIMITED):
                    latest[here, to, length] = np.maximum(most[length] + slack, latest[here, to, length])
            if is_taken:
                possible[arc] = True
                lower_ways(terms.round_trip, (terms.first_turn, terms.end_turn), ways_on[head], ways_on[here])


@compiled
def _set_most(
    terms: ArcTerms,
    before: Floats,
    after: Floats,
    latest: Floats,
    way_on: float,
    ways: Floats,
    depths: Ints,
    most: Floats,
) -> None:
    """Set how long each length may be before an arc, from the latest after it; the others are `before` and `after`.

    Each line is a test of :func:`~stagecut.planner.network.labels.lengths.extend`, or one of the sums by which it takes
    lengths further, solved for one length.
    """
    rest, slow_forward, here = terms.round_trip + way_on, after[SLOW_FORWARD], -np.inf
    turned = turned_after(terms, rest, ways, depths, before, slow_forward)
    last_loop = last_turned = np.inf
    after_interface, after_fabric, fill_home = terms.after_interface, terms.after_fabric, terms.limit - terms.after_home
    last_round_trip, last_home_after = latest[LAST_ROUND_TRIP] - terms.round_trip, terms.limit - way_on
    last_forward, last_queue, last_home = _taken_back(
        terms, latest[LAST_FORWARD], latest[LAST_QUEUE], min(latest[LAST_HOME], last_home_after)
    )
    if terms.is_stage:
        here = last_forward_after(terms, after[LOOP], slow_forward)
        after_interface, after_fabric, fill_home = -np.inf, -np.inf, terms.latest_fill - turned
        last_round_trip = min(last_round_trip, terms.limit - last_way(terms, rest, after[SLOW_BACKWARD]))
        last_forward = min(last_forward, terms.forward_with_loop)
        last_queue, last_home = min(last_queue, terms.queue_with_loop), min(last_home, terms.with_loop)
        last_loop = min(
            last_round_trip - before[ROUND_TRIP],
            last_forward - before[FORWARD],
            last_queue - before[QUEUE],
            last_home - before[HOME],
        )
        last_turned = min(
            terms.forward_with_way_on - before[FORWARD],
            terms.queue_with_way_on - before[QUEUE],
            terms.latest_fill - before[HOME],
            last_loop - terms.loop,
        )
    most[LAST_ROUND_TRIP], most[LAST_FORWARD] = last_round_trip, last_forward
    most[LAST_QUEUE], most[LAST_HOME] = last_queue, last_home
    home_after = min(latest[HOME], latest[FABRIC] - terms.home_to_fabric)
    forward, queue, home = _taken_back(terms, latest[FORWARD], latest[QUEUE], home_after)
    most[ROUND_TRIP] = min(latest[ROUND_TRIP] - terms.round_trip, last_round_trip - here)
    most[FORWARD] = min(forward, terms.forward_alone, terms.forward_with_way_on - turned, last_forward - here)
    most[QUEUE] = min(queue, terms.queue_alone, terms.queue_with_way_on - turned, last_queue - here)
    most[HOME] = min(home, terms.alone, terms.with_way_on - rest, last_home - here, fill_home)
    most[HOME] = min(most[HOME], latest[INTERFACE] - terms.home_to_interface)
    most[INTERFACE] = min(latest[INTERFACE] - terms.to_interface, terms.limit - after_interface)
    most[FABRIC] = min(latest[FABRIC] - terms.to_fabric, terms.limit - after_fabric)
    most[LOOP] = min(latest[LOOP], last_loop)
    most[SLOW_FORWARD] = latest[SLOW_FORWARD]
    if terms.num_microbatches > 1:
        slowest = (last_loop + terms.first_less) / (terms.num_microbatches - 1)
        most[SLOW_FORWARD] = min(most[SLOW_FORWARD], slowest)
    _set_passages(terms, latest, last_turned - terms.round_trip, most)


@inlined
def _set_passages(terms: ArcTerms, latest: Floats, own: float, most: Floats) -> None:
    """Set the latest passages before an arc, which may be a stage whose own is `own` at most."""
    to_passages = passages_of(terms)
    for which in range(NUM_PASSAGES):
        passage = latest[PASSAGES + which]
        most[ON_FABRIC + which] = min(latest[ON_FABRIC + which], passage) - to_passages[which]
        most[PASSAGES + which] = min(passage, own) if which == terms.num_passages - 1 else passage


@inlined
def _taken_back(terms: ArcTerms, forward: float, queue: float, home: float) -> tuple[float, float, float]:
    """The latest forward part, queue and way home before an arc from those after it."""
    return (
        min(forward - terms.forward, queue - terms.forward_to_queue, home - terms.forward_to_home),
        min(queue - terms.queue_to_queue, home - terms.queue_to_home),
        min(home - terms.round_trip, queue - terms.home_to_queue),
    )
