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

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.numerics.tolerances import PATH_SUM
from stagecut.planner.network.allreduce_queues import NO_QUEUES, AllReduceQueues, Lengths, home_of_queue, queue_after
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.link_loads import NO_LOADS, LinkLoads, LoadLengths, arc_loads, load_row, loads_after
from stagecut.planner.network.link_loads import START as NO_LOAD
from stagecut.planner.network.rows import Rows

STAGE_PRICES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Prices of a stage to try, in round trips of an average stage; every second one alone, or none, changed no plan and no
bound on vgg16 and resnet50 on mixed-server-8 and gpt2-345m on dgx-a100-16."""


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


def lowest_times(rows: Rows, prices: Floats, limit_s: float = np.inf) -> Floats:
    """For every arc, a bound on all plans that use it, rounded down; shape (A,). For prices see :func:`arc_prices`.

    With a limit it holds for plans at or below the limit: arcs above it lead no way to later ones.
    """
    network, costs_s, queues, loads = rows.network, rows.costs_s, rows.queues, rows.loads
    never = np.full(len(rows.round_trip), -np.inf)
    terms = _Terms(
        with_total=np.maximum(0.0, rows.bottleneck),
        busy=costs_s["busy"],
        sync=costs_s["sync"],
        drain=costs_s.get("drain", never),
        fill=rows.fill,
        slow=np.where(network.arcs.is_stage, network.arcs.forward_s, network.arcs.transfer_s),
        depth=np.where(network.arcs.is_stage, network.arcs.least_depth, 1),
    )
    # The price of the whole path is in every sum; it is no more than mu N, less the reward of the fewest stages.
    rounding = _Rounding(float(prices @ network.limits), float(prices @ np.abs(network.limits)), PATH_SUM)
    lengths = _Lengths(rows.round_trip, rows.forward, payments(rows), prices)
    return _lowest_times(
        network.graph.sorted_arcs,
        network.graph.num_nodes,
        lengths,
        terms,
        queues or NO_QUEUES,
        loads or NO_LOADS,
        rounding,
        limit_s,
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
    slow: Floats
    """F of a stage, c of a transfer."""
    depth: Ints
    """Least warm-up depth of a stage, 1 of a transfer."""


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


@compiled
def _lowest_times(
    arcs: SortedArcs,
    num_nodes: int,
    lengths: _Lengths,
    terms: _Terms,
    queues: AllReduceQueues,
    loads: LinkLoads,
    rounding: _Rounding,
    limit_s: float,
) -> Floats:
    # Least sums from each node to the sink.
    on, price_on = np.full(num_nodes, np.inf), np.full(num_nodes, np.inf)
    on[-1] = price_on[-1] = 0.0
    for arc in arcs.order[::-1]:
        tail, head, price = arcs.tail[arc], arcs.head[arc], price_of(lengths.payments, arc, lengths.prices)
        on[tail] = min(on[tail], on[head] + (lengths.round_trip[arc] + price))
        price_on[tail] = min(price_on[tail], price_on[head] + price)
    # Least lengths from the source to each node, over arcs that are not above the limit.
    home, forward, queue = np.full(num_nodes, np.inf), np.full(num_nodes, np.inf), np.full(num_nodes, np.inf)
    slow, interface, fabric = np.full(num_nodes, np.inf), np.full(num_nodes, np.inf), np.full(num_nodes, np.inf)
    home[0] = forward[0] = queue[0] = slow[0] = 0.0
    interface[0], fabric[0] = NO_LOAD
    lowest, has_queues = np.full(len(arcs.tail), np.inf), len(queues.after_busy) > 0
    for arc in arcs.order:
        tail, head, price = arcs.tail[arc], arcs.head[arc], price_of(lengths.payments, arc, lengths.prices)
        round_trip = lengths.round_trip[arc] + price
        rest, rest_price = on[head] + round_trip, price_on[head] + price
        if home[tail] == np.inf or rest == np.inf:
            continue
        before = Lengths(home[tail], forward[tail], queue[tail])
        row = max(before.home + rest + terms.with_total[arc], before.home + rest_price + terms.busy[arc])
        row = max(row, before.forward + rest_price + terms.sync[arc], before.forward + rest + terms.drain[arc])
        slowest, home_after = max(slow[tail], terms.slow[arc]), before.home + round_trip
        if has_queues:
            # The first backward may turn at this stage, after as many forwards of the slowest stage before it.
            turned = max(rest, lengths.round_trip[arc] + rest_price + (terms.depth[arc] - 1) * slowest)
            row = max(row, before.home + turned + terms.fill[arc], before.forward + turned + terms.drain[arc])
            row = max(row, before.queue + rest_price + queues.after_busy[arc])
            row = max(row, before.queue + turned + queues.after_drain[arc])
            home_after = max(home_after, home_of_queue(queues, arc, before) + price)
            own, loaded = arc_loads(loads, arc), LoadLengths(interface[tail], fabric[tail])
            row = max(row, load_row(own, loaded, before.home) + rest_price)
        row -= rounding.budget_s + rounding.relative * (abs(row) + rounding.slack_s)
        lowest[arc] = row
        if row > limit_s:
            continue
        if has_queues:
            queue[head] = min(queue[head], queue_after(queues, arc, before) + price)
            loaded = loads_after(own, loaded, before.home, home_after - price)
            interface[head] = min(interface[head], loaded.interface + price)
            fabric[head] = min(fabric[head], loaded.fabric + price)
        home[head] = min(home[head], home_after)
        forward[head] = min(forward[head], before.forward + (lengths.forward[arc] + price))
        slow[head] = min(slow[head], slowest)
    return lowest


def position_ranges(rows: Rows, prices: Floats, limit_s: float) -> tuple[Ints, Ints]:
    """Fewest and most stages that plans below the limit may have after each node, shape (nodes,) each.

    The rows are those of a network without positions. A plan below T has total <= T - X, where X, the
    largest term of its fill rows beside the total, is at least :func:`_bottleneck_floor`. With a price
    sigma on every stage, of either sign, the way on from a node with p stages is at least the priced
    shortest one less sigma p, which limits p from below or from above.
    """
    network, graph = rows.network, rows.network.graph
    length, stages = rows.round_trip + arc_prices(rows, prices), network.arcs.is_stage.astype(float)
    budget = limit_s - _bottleneck_floor(rows) + float(prices @ network.limits)
    budget += PATH_SUM * (abs(budget) + limit_s)
    fewest, most = network.stages_to_come()
    spare = budget - graph.from_source(length)
    scale = float(graph.to_sink(rows.round_trip)[0]) / max(1, int(fewest[0]))
    for share in STAGE_PRICES:
        sigma = share * scale
        if not np.isfinite(spare).all() or sigma == 0:
            break
        # on(+sigma) <= spare + sigma p  and  on(-sigma) <= spare - sigma p
        least = np.ceil((graph.to_sink(length + sigma * stages) - spare) / sigma - PATH_SUM)
        largest = np.floor((spare - graph.to_sink(length - sigma * stages)) / sigma + PATH_SUM)
        fewest = np.maximum(fewest, np.clip(least, 0, network.costs.max_stages).astype(np.int64))
        most = np.minimum(most, np.clip(largest, -1, network.costs.max_stages).astype(np.int64))
    return fewest, most


def _bottleneck_floor(rows: Rows) -> float:
    """Max over layers of the least fill term of a stage that covers the layer: every plan has a stage with as much."""
    arcs, num_layers = rows.network.arcs, rows.network.num_layers
    least = np.full((num_layers, num_layers + 1), np.inf)
    stages = arcs.is_stage
    np.minimum.at(least, (arcs.start[stages], arcs.stop[stages]), rows.costs_s["fill"][stages])
    # least[i, j] becomes the least over stages that start at or before i and stop at or after j.
    least = np.minimum.accumulate(least, axis=0)
    least = np.minimum.accumulate(least[:, ::-1], axis=1)[:, ::-1]
    layers = np.arange(num_layers)
    return float(least[layers, layers + 1].max())
