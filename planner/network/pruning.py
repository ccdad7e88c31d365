"""What each arc of a network proves by itself: no plan that uses it is faster.

A plan through arc a takes at least the row of a in every family, with the least that can come
before and after it (docs/bounds.md):

    busy:  way to a + M (F + B)                      fill:   way through a + (M - 1)(F + B) - (k - 1) F
    sync:  forward way to a + M (F + B) + g          drain:  forward way to a, way on + the same + g
    link:  way through a + (M - 1) c
    queue: forward way to a and the all-reduces in line, + M (F + B) and its own, or alike after a drain

Hosts are limited, and there may be a fewest number of stages. With a price mu_h >= 0 on every host
of class h, a plan pays no more than mu N = sum over h of mu_h N_h, so the length of its path plus
its price, less mu N, is no more than its length: labels of priced paths, one price for the whole path
whichever part of it is measured, are valid for any prices, and see that slow stages cannot all be
avoided. A reward for every stage, less the reward of the fewest, is such a price as well.
"""

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.network.rows import Family, Rows

TOLERANCE = 1e-10
"""Relative error allowed for sums of a few hundred double-precision terms, far more than they make."""
STAGE_PRICES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Prices of a stage to try, in round trips of an average stage."""


def arc_prices(rows: Rows, prices: Floats) -> Floats:
    """What each arc pays for the hosts that it opens, or is paid for being a stage, shape (A,).

    Parameters
    ----------
    prices
        Of a host of each class, and of a stage, non-negative, shape (server classes + 1,).
    """
    arcs, host_prices = rows.network.arcs, prices[:-1]
    price = np.where(arcs.is_stage, -prices[-1], 0.0)
    opening = arcs.opened_hosts > 0
    price[opening] = host_prices[arcs.opened_class[opening]] * arcs.opened_hosts[opening]
    return price


def lowest_times(rows: Rows, prices: Floats, usable: Bools) -> Floats:
    """For every arc, a bound on all plans that use it and otherwise usable arcs only, rounded down.

    Parameters
    ----------
    prices
        See :func:`arc_prices`.
    usable
        Shape (A,).

    Returns
    -------
    Floats
        Shape (A,), infinite for an arc that is not usable.
    """
    network, graph = rows.network, rows.network.graph
    price = np.where(usable, arc_prices(rows, prices), np.inf)
    budget = float(prices @ network.limits)
    length = rows.round_trip + price
    to, forward_to = (graph.from_source(cost)[graph.tail] for cost in (length, rows.forward + price))
    on = graph.to_sink(length)[graph.head] + length
    hosts_on = graph.to_sink(price)[graph.head] + price
    families = {family.name: family for family in rows.families}
    lowest = to + on
    for name, way in (
        ("busy", to + hosts_on),
        ("fill", to + on),
        ("sync", forward_to + hosts_on),
        ("drain", forward_to + on),
    ):
        if name in families:
            np.maximum(lowest, np.where(network.arcs.is_stage, way + cover_of(families[name]), -np.inf), out=lowest)
    if "link" in families:
        np.maximum(lowest, to + on + starting_of(families["link"]), out=lowest)
    if "flush forward" in families:
        halves = cover_of(families["flush forward"]) + cover_of(families["flush backward"])
        np.maximum(lowest, to + on + halves, out=lowest)
    if rows.queues is not None:
        queues = rows.queues
        forward = rows.forward + price
        in_line = graph.from_restarts(forward, queues.queued_s, queues.restarts, graph.from_source(forward))[graph.tail]
        # Unreachable and not in line make nan, which fmax passes over.
        with np.errstate(invalid="ignore"):
            np.fmax(lowest, in_line + hosts_on + queues.after_busy_s, out=lowest)
            np.fmax(lowest, in_line + on + queues.after_drain_s, out=lowest)
    finite = np.isfinite(lowest)
    lowest[finite] -= budget + TOLERANCE * (np.abs(lowest[finite]) + float(prices @ np.abs(network.limits)))
    return lowest


def position_ranges(rows: Rows, prices: Floats, limit_s: float) -> tuple[Ints, Ints]:
    """Fewest and most stages that plans below the limit may have after each node, shape (nodes,) each.

    A plan below T has total <= T - X, with X the largest term of its fill rows beside the total, and
    so at least the largest X, over the layers, that no stage covering the layer is below. With a
    price sigma on every stage, of either sign, the way on from a node with p stages is at least the
    priced shortest one less sigma p, which limits p from below or from above.

    Parameters
    ----------
    rows
        Of a network without positions.
    """
    network, graph = rows.network, rows.network.graph
    price = arc_prices(rows, prices)
    length, stages = rows.round_trip + price, network.arcs.is_stage.astype(float)
    budget = limit_s - _bottleneck_floor(rows) + float(prices @ network.limits)
    budget += TOLERANCE * (abs(budget) + limit_s)
    fewest, most = network.stages_to_come()
    spare = budget - graph.from_source(length)
    scale = float(graph.to_sink(rows.round_trip)[0]) / max(1, int(fewest[0]))
    for share in STAGE_PRICES:
        sigma = share * scale
        if not np.isfinite(spare).all() or sigma == 0:
            break
        least = np.ceil((graph.to_sink(length + sigma * stages) - spare) / sigma - TOLERANCE)
        largest = np.floor((spare - graph.to_sink(length - sigma * stages)) / sigma + TOLERANCE)
        fewest = np.maximum(fewest, np.clip(least, 0, network.costs.max_stages).astype(np.int64))
        most = np.minimum(most, np.clip(largest, -1, network.costs.max_stages).astype(np.int64))
    return fewest, most


def _bottleneck_floor(rows: Rows) -> float:
    """Every plan has a stage whose fill row is at least the total and this."""
    arcs, num_layers = rows.network.arcs, rows.network.num_layers
    fill = cover_of(next(family for family in rows.families if family.name == "fill"))
    least = np.full((num_layers, num_layers + 1), np.inf)
    stages = arcs.is_stage
    np.minimum.at(least, (arcs.start[stages], arcs.stop[stages]), fill[stages])
    least = np.minimum.accumulate(least, axis=0)
    least = np.minimum.accumulate(least[:, ::-1], axis=1)[:, ::-1]
    layers = np.arange(num_layers)
    return float(least[layers, layers + 1].max())


def cover_of(family: Family) -> Floats:
    """The cover of a family of layers."""
    assert family.cover is not None
    return family.cover


def starting_of(family: Family) -> Floats:
    """What arcs add where they start, in a family of boundaries."""
    assert family.starting is not None
    return family.starting
