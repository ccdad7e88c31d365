"""What each arc of a network proves by itself: no plan that uses it is faster.

A plan through arc a takes at least the row of a in every family, with the least that can come
before and after it (docs/bounds.md):

    busy:  way to a + M (F + B)                      fill:   way through a + (M - 1)(F + B) - (k - 1) F
    sync:  forward way to a + M (F + B) + g          drain:  forward way to a, way on + the same + g
    link:  way through a + (M - 1) c                 flush:  way through a + (M - 1)(F + B)
    queue: forward way to a and the all-reduces queued, + M (F + B) and its own; and alike after a drain
    load:  way to a and the messages on the link that a transfer takes, + its own

Hosts are limited, and there may be a fewest number of stages. With a price mu_h >= 0 on every host
of class h, a plan pays no more than mu N = sum over h of mu_h N_h, so the length of its path plus
its price, less mu N, is no more than its length: labels of priced paths, one price for the whole path
whichever part of it is measured, are valid for any prices, and see that slow stages cannot all be
avoided. A reward for every stage, less the reward of the fewest, is such a price as well.
"""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled, inlined
from stagecut.planner.core.numerics.tolerances import PATH_SUM
from stagecut.planner.network.allreduce_queues import NO_QUEUES, AllReduceQueues, Lengths, home_of_queue, queue_after
from stagecut.planner.network.copies import Copies
from stagecut.planner.network.link_loads import NO_LOADS, LinkLoads, LoadLengths, arc_loads, load_row, loads_after
from stagecut.planner.network.link_loads import START as NO_LOAD
from stagecut.planner.network.rows import Rows


class Payments(NamedTuple):
    """What arcs pay for, each of shape (A,): `amount` times the price of `unit`."""

    unit: Ints
    """A server class, for hosts that the arc opens; for stages, the number of classes: the reward of a stage."""
    amount: Floats


def payments(rows: Rows) -> Payments:
    """What each arc pays for: the hosts that it opens or, minus once, being a stage."""
    arcs, reward = rows.network.arcs, len(rows.network.limits) - 1
    unit = np.where(arcs.is_stage, reward, np.maximum(0, arcs.opened_class))
    return Payments(unit, np.where(arcs.is_stage, -1.0, arcs.opened_hosts))


def arc_prices(rows: Rows, prices: Floats) -> Floats:
    """What each arc pays for the hosts that it opens, or is paid for being a stage, shape (A,).

    `prices` holds the price of a host of each class, then the reward of a stage; none is negative.
    """
    paid = payments(rows)
    return prices[paid.unit] * paid.amount


class ArcsLeft(NamedTuple):
    """What single arcs prove, each of shape (A,)."""

    lowest_s: Floats
    """A bound on all plans that use the arc, rounded down."""
    least_position: Ints
    """Fewest and most stages to come with which the arc may be on a plan below the limit; the fewest are more if none
    is left."""
    largest_position: Ints


def left_by_arcs(rows: Rows, prices: Floats, limit_s: float) -> ArcsLeft:
    """What holds for plans at or below the limit: arcs above it lead no way to later ones.

    Without positions each arc is looked at with every number of stages to come that it may have.
    """
    network, costs_s, queues, loads = rows.network, rows.costs_s, rows.queues, rows.loads
    arcs, never = network.arcs, np.full(len(rows.round_trip), -np.inf)
    terms = _Terms(
        with_total=np.maximum(0.0, rows.bottleneck),
        busy=costs_s["busy"],
        sync=costs_s["sync"],
        drain=costs_s.get("drain", never),
        fill=rows.fill,
        is_stage=arcs.is_stage,
        forward=np.where(arcs.is_stage, arcs.forward_s, arcs.transfer_s),
        later=(network.variant.num_microbatches - 1) * (arcs.forward_s + arcs.backward_s),
        depths=network.depths,
    )
    # The price of the whole path is in every sum; it is no more than mu N, less the reward of the fewest stages.
    rounding = _Rounding(float(prices @ network.limits), float(prices @ np.abs(network.limits)), PATH_SUM)
    lengths = _Lengths(rows.round_trip, rows.forward, payments(rows), prices)
    order, copies = network.graph.by_tail, network.copies
    return ArcsLeft(
        *_left_by_arcs(order, copies, lengths, terms, queues or NO_QUEUES, loads or NO_LOADS, rounding, limit_s)
    )


class _Lengths(NamedTuple):
    """What an arc adds to sums along paths, each of shape (A,)."""

    round_trip: Floats
    """Without its price, which is added to both."""
    forward: Floats
    payments: Payments
    prices: Floats
    """By unit."""


class _Terms(NamedTuple):
    """What a row of an arc adds to the sums before and after it, each of shape (A,)."""

    with_total: Floats
    busy: Floats
    sync: Floats
    drain: Floats
    fill: Floats
    is_stage: Bools
    forward: Floats
    """F of a stage, c of a transfer."""
    later: Floats
    """(M - 1)(F + B) of a stage."""
    depths: Ints
    """Warm-up depth k of a stage by its position."""


class _Rounding(NamedTuple):
    """What is taken off a row with prices."""

    budget_s: float
    slack_s: float
    """The prices of all hosts and stages, to which rounding is relative as well."""
    relative: float


@compiled
def price_of(paid: Payments, arc: int, prices: Floats) -> float:
    """What one arc pays."""
    return float(prices[paid.unit[arc]] * paid.amount[arc])


@inlined
def _at(terms: _Terms, arc: int, position: int) -> tuple[int, float]:
    """Warm-up depth of an arc, and what it adds to its fill row."""
    if not terms.is_stage[arc]:
        return 1, terms.fill[arc]
    depth = terms.depths[position]
    return depth, terms.later[arc] - (depth - 1) * terms.forward[arc]


@compiled
def _left_by_arcs(
    order: Ints,
    copies: Copies,
    lengths: _Lengths,
    terms: _Terms,
    queues: AllReduceQueues,
    loads: LinkLoads,
    rounding: _Rounding,
    limit_s: float,
) -> tuple[Floats, Ints, Ints]:
    lengths, terms, queues, loads = borrowed((lengths, terms, queues, loads))
    num_copies = copies.size
    # Least sums from each copy of a node to the sink.
    on, price_on = np.full(num_copies, np.inf), np.full(num_copies, np.inf)
    on[-1] = price_on[-1] = 0.0
    for arc in order[::-1]:
        price = price_of(lengths.payments, arc, lengths.prices)
        for position in range(copies.least[arc], copies.largest[arc] + 1):
            tail, head = copies.tail[arc] + position, copies.head[arc] + position
            on[tail] = min(on[tail], on[head] + (lengths.round_trip[arc] + price))
            price_on[tail] = min(price_on[tail], price_on[head] + price)
    # Least lengths from the source to each copy, over arcs that are not above the limit.
    home, forward, queue = np.full(num_copies, np.inf), np.full(num_copies, np.inf), np.full(num_copies, np.inf)
    slow, interface, fabric = np.full(num_copies, np.inf), np.full(num_copies, np.inf), np.full(num_copies, np.inf)
    for source in range(copies.of_nodes[0]):
        home[source] = forward[source] = queue[source] = slow[source] = 0.0
        interface[source], fabric[source] = NO_LOAD
    num_arcs, has_queues = len(copies.tail), len(queues.after_busy) > 0
    lowest, least, largest = (
        np.full(num_arcs, np.inf),
        np.full(num_arcs, len(terms.depths) - 1),
        np.zeros(num_arcs, np.int64),
    )
    for arc in order:
        price = price_of(lengths.payments, arc, lengths.prices)
        round_trip = lengths.round_trip[arc] + price
        for position in range(copies.least[arc], copies.largest[arc] + 1):
            tail, head = copies.tail[arc] + position, copies.head[arc] + position
            rest, rest_price = on[head] + round_trip, price_on[head] + price
            if home[tail] == np.inf or rest == np.inf:
                continue
            depth, fill = _at(terms, arc, position)
            # Rows have what is added at the largest depth that the arc may have.
            more = max(0.0, fill - terms.fill[arc])
            drain = terms.drain[arc] + more
            before = Lengths(home[tail], forward[tail], queue[tail])
            row = max(before.home + rest + max(terms.with_total[arc], fill), before.home + rest_price + terms.busy[arc])
            row = max(row, before.forward + rest_price + terms.sync[arc], before.forward + rest + drain)
            slowest, home_after = max(slow[tail], terms.forward[arc]), before.home + round_trip
            if has_queues:
                # The first backward may turn at this stage, after as many forwards of the slowest stage before it.
                turned = max(rest, lengths.round_trip[arc] + rest_price + (depth - 1) * slowest)
                row = max(row, before.home + turned + fill, before.forward + turned + drain)
                row = max(row, before.queue + rest_price + queues.after_busy[arc])
                row = max(row, before.queue + turned + queues.after_drain[arc] + more)
                home_after = max(home_after, home_of_queue(queues, arc, before) + price)
                own, loaded = arc_loads(loads, arc), LoadLengths(interface[tail], fabric[tail])
                row = max(row, load_row(own, loaded, before.home) + rest_price)
            row -= rounding.budget_s + rounding.relative * (abs(row) + rounding.slack_s)
            lowest[arc] = min(lowest[arc], row)
            if row > limit_s:
                continue
            least[arc], largest[arc] = min(least[arc], position), max(largest[arc], position)
            if has_queues:
                queue[head] = min(queue[head], queue_after(queues, arc, before) + price)
                loaded = loads_after(own, loaded, before.home, home_after - price)
                interface[head] = min(interface[head], loaded.interface + price)
                fabric[head] = min(fabric[head], loaded.fabric + price)
            home[head] = min(home[head], home_after)
            forward[head] = min(forward[head], before.forward + (lengths.forward[arc] + price))
            slow[head] = min(slow[head], slowest)
    return lowest, least, largest
