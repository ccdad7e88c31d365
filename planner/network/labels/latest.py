"""How long a label may be at a counted node for some way on from there to be in time: labels from the other end.

A label keeps the least of each length of the ways to a node. From the sink back, each counted node gets the *latest* of
each length: the most that any way on leaves in time, where the other lengths are those of the label. A plan below T is
no longer at any of its nodes: every limit on its way on holds with its own lengths, none of which is below the label's.
So labels that are too long lead nowhere, arcs that only such labels take are left out, and of the ways on that are left
the least round trip is longer.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.numerics.tolerances import LABEL_SUM
from stagecut.planner.network.labels.counted_nodes import NONE, after_arc
from stagecut.planner.network.labels.lengths import (
    FABRIC,
    FORWARD,
    HOME,
    INTERFACE,
    LOOP,
    NUM_LIMITED,
    QUEUE,
    ROUND_TRIP,
    SLOW_BACKWARD,
    SLOW_FORWARD,
    START,
    ArcTerms,
    extend,
    last_forward_after,
    last_way,
    lower_ways,
    set_terms,
    turned_after,
)
from stagecut.planner.network.labels.sweep import Labels, Sweep


@compiled
def in_time(after: Floats, latest: Floats) -> bool:
    """Whether no length is beyond the latest at a counted node."""
    late = False
    for length in range(NUM_LIMITED):
        late |= after[length] > latest[length]
    return not late


@compiled
def set_latest(sweep: Sweep, labels: Labels, latest: Floats, possible: Bools) -> None:
    """Set the latest lengths, shape (C, limited lengths), the ways on, and which arcs are taken in time, from labels.

    Both are infinite at the sink, and elsewhere where there is no way on.
    """
    arcs, nodes, terms, depths = sweep.arcs, sweep.nodes, sweep.terms[0], sweep.criteria.turns.depths
    lengths, ways_on, ways = labels.lengths, nodes.ways_on, nodes.ways_on[0].copy()
    after, most = START.copy(), START[:NUM_LIMITED].copy()
    # Sums from the sink and from the source differ by rounding.
    slack = LABEL_SUM * sweep.criteria.limit if sweep.criteria.limit < np.inf else 0.0
    latest[:] = -np.inf
    latest[nodes.first[-2] :] = np.inf
    ways_on[: nodes.first[-2]] = np.inf
    for arc in arcs.order[::-1]:
        set_terms(sweep.criteria, arc, terms)
        node = arcs.tail[arc]
        for here in range(nodes.first[node], nodes.first[node + 1]):
            if labels.arc[here] == NONE:
                continue
            head = after_arc(arcs, sweep.openings, nodes.number, arc, nodes.state[here])
            if head == NONE or latest[head, ROUND_TRIP] == -np.inf:
                continue
            taken = extend(terms, lengths[here], ways_on[head], depths, sweep.thetas, ways, after)
            if taken and in_time(after, latest[head]):
                possible[arc] = True
                _set_most(terms, lengths[here], after, latest[head], ways_on[head, 0], ways, depths, most)
                for length in range(NUM_LIMITED):
                    latest[here, length] = max(latest[here, length], most[length] + slack)
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
    rest, slow_forward = terms.round_trip + way_on, after[SLOW_FORWARD]
    turned, here, last_forward = turned_after(terms, rest, ways, depths, slow_forward), -np.inf, np.inf
    after_interface, after_fabric, home = terms.after_interface, terms.after_fabric, terms.limit - terms.after_home
    way = -np.inf
    if terms.is_stage:
        here, way = last_forward_after(terms, after[LOOP], slow_forward), last_way(terms, rest, after[SLOW_BACKWARD])
        after_interface, after_fabric, home = -np.inf, -np.inf, terms.latest_fill - turned
        last_forward = min(
            terms.limit - before[ROUND_TRIP] - way,
            terms.with_loop - before[HOME],
            terms.forward_with_loop - before[FORWARD],
            terms.queue_with_loop - before[QUEUE],
        )
    home_after = min(latest[HOME], latest[FABRIC] - terms.home_to_fabric)
    most[ROUND_TRIP] = min(latest[ROUND_TRIP] - terms.round_trip, terms.limit - here - way)
    most[HOME] = min(
        home,
        terms.alone,
        terms.with_way_on - rest,
        terms.with_loop - here,
        home_after - terms.round_trip,
        latest[QUEUE] - terms.home_to_queue,
        latest[INTERFACE] - terms.home_to_interface,
    )
    most[QUEUE] = min(
        terms.queue_alone,
        terms.queue_with_way_on - turned,
        terms.queue_with_loop - here,
        latest[QUEUE] - terms.queue_to_queue,
        home_after - terms.queue_to_home,
    )
    most[FORWARD] = min(
        terms.forward_alone,
        terms.forward_with_way_on - turned,
        terms.forward_with_loop - here,
        latest[FORWARD] - terms.forward,
        latest[QUEUE] - terms.forward_to_queue,
        home_after - terms.forward_to_home,
    )
    most[INTERFACE] = min(latest[INTERFACE] - terms.to_interface, terms.limit - after_interface)
    most[FABRIC] = min(latest[FABRIC] - terms.to_fabric, terms.limit - after_fabric)
    most[LOOP] = min(latest[LOOP], last_forward)
    most[SLOW_FORWARD] = latest[SLOW_FORWARD]
    if terms.num_microbatches > 1:
        slowest = (last_forward + terms.first_less) / (terms.num_microbatches - 1)
        most[SLOW_FORWARD] = min(most[SLOW_FORWARD], slowest)
