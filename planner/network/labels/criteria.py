"""What arcs cost, and how long a path may be where it takes one."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.network.allreduce_queues import NO_QUEUES, AllReduceQueues
from stagecut.planner.network.link_loads import NO_LOADS, LinkLoads


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


NUM_PASSAGES = 2
"""For how many warm-up depths labels follow the passage of shared fabrics."""


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
    passages: Ints
    """Two warm-up depths, in order: of how many activations labels follow how late they leave shared fabrics, which
    delays the first backward of a stage at least as deep; shape (`NUM_PASSAGES`,)."""
    num_microbatches: int
    depth_step: int
    """By how much warm-up depths grow from stage to stage, and so the micro-batches of a loop of one more stage."""


NO_INTS, NO_FLOATS, NO_BOOLS = np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
_ONES = np.ones(NUM_PASSAGES, np.int64)
NO_TURNS = Turns(NO_BOOLS, *(NO_FLOATS,) * 4, *(NO_INTS,) * 4, NO_BOOLS, NO_FLOATS, _ONES[:1], _ONES, 0, 1)


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
