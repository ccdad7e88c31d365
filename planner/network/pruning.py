"""What each arc of a network proves by itself: no plan that uses it is faster.

A plan through arc a takes at least the row of a in every family, with the least that can come
before and after it (docs/bounds.md):

    busy:  way to a + M (F + B)                      fill:   way through a + (M - 1)(F + B) - (k - 1) F
    sync:  forward way to a + M (F + B) + g          drain:  forward way to a, way on + the same + g
    link:  way through a + (M - 1) c                 flush:  way through a + (M - 1)(F + B)
    queue: forward way to a and the all-reduces queued, + M (F + B) and its own; and alike after a drain

Hosts are limited, and there may be a fewest number of stages. With a price mu_h >= 0 on every host
of class h, a plan pays no more than mu N = sum over h of mu_h N_h, so the length of its path plus
its price, less mu N, is no more than its length: labels of priced paths, one price for the whole path
whichever part of it is measured, are valid for any prices, and see that slow stages cannot all be
avoided. A reward for every stage, less the reward of the fewest, is such a price as well.
"""

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.tolerances import PATH_SUM
from stagecut.planner.network.rows import Rows

STAGE_PRICES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Prices of a stage to try, in round trips of an average stage; every second one alone, or none, changed no plan and no
bound on vgg16 and resnet50 on mixed-server-8 and gpt2-345m on dgx-a100-16."""


def arc_prices(rows: Rows, prices: Floats) -> Floats:
    """What each arc pays for the hosts that it opens, or is paid for being a stage, shape (A,).

    `prices` holds the price of a host of each class, then the reward of a stage; none is negative.
    """
    arcs = rows.network.arcs
    price = np.where(arcs.is_stage, -prices[-1], 0.0)
    opening = arcs.opened_hosts > 0
    price[opening] = prices[:-1][arcs.opened_class[opening]] * arcs.opened_hosts[opening]
    return price


def lowest_times(rows: Rows, prices: Floats) -> Floats:
    """For every arc, a bound on all plans that use it, rounded down; shape (A,). For prices see :func:`arc_prices`."""
    network, graph = rows.network, rows.network.graph
    price = arc_prices(rows, prices)
    # budget = mu N less the reward of the fewest stages; the price of the whole path is in every sum below.
    budget = float(prices @ network.limits)
    length, forward = rows.round_trip + price, rows.forward + price
    forward_from_source = graph.from_source(forward)
    to, forward_to = graph.from_source(length)[graph.tail], forward_from_source[graph.tail]
    on = graph.to_sink(length)[graph.head] + length
    hosts_on = graph.to_sink(price)[graph.head] + price
    costs_s = rows.costs_s
    lowest = to + on
    for name, way in (
        ("busy", to + hosts_on),
        ("fill", to + on),
        ("sync", forward_to + hosts_on),
        ("drain", forward_to + on),
    ):
        if name in costs_s:
            np.maximum(lowest, np.where(network.arcs.is_stage, way + costs_s[name], -np.inf), out=lowest)
    if "link" in costs_s:
        np.maximum(lowest, to + on + costs_s["link"], out=lowest)
    if "flush forward" in costs_s:
        np.maximum(lowest, to + on + (costs_s["flush forward"] + costs_s["flush backward"]), out=lowest)
    if rows.queues is not None:
        queues = rows.queues
        queued = graph.from_restarts(forward, queues.queued_s, queues.restarts, forward_from_source)[graph.tail]
        # An unreachable arc that does not queue makes inf - inf = nan, which fmax passes over.
        with np.errstate(invalid="ignore"):
            np.fmax(lowest, queued + hosts_on + queues.after_busy_s, out=lowest)
            np.fmax(lowest, queued + on + queues.after_drain_s, out=lowest)
    finite = np.isfinite(lowest)
    lowest[finite] -= budget + PATH_SUM * (np.abs(lowest[finite]) + float(prices @ np.abs(network.limits)))
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
