"""What arcs add to the lengths of a label, each in one place for all sweeps."""

from typing import Protocol, get_type_hints

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled, inlined
from stagecut.planner.network.labels.criteria import Criteria, Turns
from stagecut.planner.network.link_loads import ArcLoads


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
    to_first_passage: float
    to_second_passage: float
    least_depth: int
    largest_depth: int
    first_turn: int
    end_turn: int
    num_passages: int
    num_microbatches: int
    depth_step: int
    own_pairs: int
    pairs: int
    is_stage: bool
    begins_window: bool


TERMS = np.dtype(list(get_type_hints(ArcTerms).items()), align=True)


def terms_of(criteria: Criteria, order: Ints) -> NDArray[np.void]:
    """The terms of the arcs in an order, shape (A,); those of other arcs are not set."""
    # What is not set is not touched, and takes no memory.
    terms = np.empty(len(criteria.round_trip), TERMS)
    _set_all(criteria, order, terms)
    return terms


@compiled
def _set_all(criteria: Criteria, order: Ints, terms: NDArray[np.void]) -> None:
    criteria = borrowed(criteria)
    for arc in order:
        _set_terms(criteria, arc, terms[arc])


@inlined
def _set_terms(criteria: Criteria, arc: int, terms: ArcTerms) -> None:
    """Set the terms of one arc; without turns the first few only."""
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
    terms.to_first_passage = _to_passage(criteria, arc, turns.passages[0])
    terms.to_second_passage = _to_passage(criteria, arc, turns.passages[1])
    terms.num_passages = int(turns.passages[0] <= terms.least_depth) + int(turns.passages[1] <= terms.least_depth)


@inlined
def passages_of(terms: ArcTerms) -> tuple[float, float]:
    """What an arc adds to the passages of the current fabric."""
    return terms.to_first_passage, terms.to_second_passage


@inlined
def _to_passage(criteria: Criteria, arc: int, depth: int) -> float:
    """What an arc adds to the passage of so many micro-batches; minus infinity for a transfer off the fabric."""
    if criteria.turns.is_stage[arc]:
        return float(-criteria.turns.forward[arc])
    if criteria.loads.after_fabric[arc] == -np.inf:
        return -np.inf
    return float((depth - 1) * criteria.turns.forward[arc])


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
