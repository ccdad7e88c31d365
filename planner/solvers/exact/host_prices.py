"""Prices of hosts that make the shortest path through a network long: a Lagrangian dual, by cutting planes.

    max over mu >= 0 of g(mu),   g(mu) = min over paths of (round trip + mu x hosts opened) - mu N,

with a reward for every stage as the last of the prices, is concave and piecewise linear. Each shortest
path found is a cut of a small linear program; the next prices are half way from the best ones so far
to its optimum.
"""

import math
from collections.abc import Callable

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.network.copies import Copies
from stagecut.planner.network.labels.counted_paths import num_states
from stagecut.planner.network.pruning import Payments, payments, price_of
from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.search.options import StopCheck

# Half or twice each of these changed no plan and no bound on vgg16 and resnet50 on mixed-server-8, nor,
# GAIN_TOLERANCE not measured, on gpt2-345m on dgx-a100-16.
MAX_ROUNDS = 40
GAIN_TOLERANCE = 1e-3
"""The search ends when the relative gain still possible is no more than this."""
NEAR_OPTIMUM = 1e-4
"""How far the optimum of the program of cuts may be missed, relative to the longest path: less than is gained by it."""
STEPS, WEIGHT_GROWTH = 200, 4.0
"""Most steps of Newton's method in one such program, and what t grows by."""
HIGHEST, CONFINED, GROWTH = 1e4, 0.9, 16.0
"""Prices of a host are sought up to one shortest round trip without prices at first, and up to `GROWTH` times as much
when the optimum lies above the part `CONFINED` of that, until `HIGHEST` round trips: where hosts do not suffice, the
length grows with the prices without end."""


TIGHT, WORTH_PRICES = (0.75, 0.5), 1_000_000
"""Shares of all hosts for which labels that count them get prices, where there are no fewer counted nodes than this."""


def prices_of_few(rows: Rows, *, stop: StopCheck) -> Floats:
    """Prices of hosts where only a share of them is there, for each of `TIGHT`, shape (shares, server classes)."""
    hosts = np.array([server.count for server in rows.network.cluster.servers])
    num_classes, num_counted = len(hosts), rows.network.graph.num_nodes * num_states(hosts.tolist())
    is_worth_it = num_classes > 1 and num_counted >= WORTH_PRICES
    limits = [np.append(share * hosts, 0.0) for share in TIGHT if is_worth_it]
    found = [_prices_of(rows, some, np.zeros(num_classes + 1), stop=stop)[:-1] for some in limits]
    return np.array(found).reshape(-1, num_classes)


def find_host_prices(rows: Rows, start: Floats, *, stop: StopCheck) -> Floats:
    """Prices of hosts and of a stage, shape (server classes + 1,), from those to begin with."""
    return _prices_of(rows, rows.network.limits, start, stop=stop)


def _prices_of(rows: Rows, limits: Floats, start: Floats, *, stop: StopCheck) -> Floats:
    order, copies, paid = rows.network.graph.by_tail, rows.network.copies, payments(rows)

    def shortest(prices: Floats) -> tuple[float, Floats] | None:
        length, used = _shortest_path(order, copies, rows.round_trip, paid, prices)
        return None if length == np.inf else (length, used)

    return best_prices(shortest, limits, start, stop=stop)


def best_prices(
    shortest: Callable[[Floats], tuple[float, Floats] | None], limits: Floats, start: Floats, *, stop: StopCheck
) -> Floats:
    """Good prices of what is limited, where a path uses some of it, from those to begin with.

    `shortest` gives length and use of a shortest path at some prices, the length without them; None if there is none.
    """
    lengths: list[float] = []
    slopes: list[Floats] = []
    prices, best, best_value, unit, highest = start, start, -np.inf, start, start
    for _ in range(MAX_ROUNDS):
        found = shortest(prices)
        if found is None:
            break
        length, slope = found[0], found[1] - limits
        lengths.append(length)
        slopes.append(slope)
        value = length + float(prices @ slope)
        if value > best_value:
            best, best_value = prices, value
        if len(lengths) == 1:
            unit = max(length, np.finfo(float).tiny) / np.maximum(1.0, np.abs(limits))
            highest = np.maximum(2 * start, unit)
        # In units of the highest prices and of about the best value, all prices are between 0 and 1.
        scale = max(lengths[0], best_value, float((highest * np.maximum(1.0, np.abs(limits))).max()) / HIGHEST)
        cuts = np.column_stack((np.array(slopes) * (highest / scale), np.full(len(slopes), -1.0)))
        target, most = best_of_cuts(np.array(lengths) / scale, cuts)
        confined = (target > CONFINED) & (highest < HIGHEST * unit)
        if stop() or (most * scale - best_value <= GAIN_TOLERANCE * abs(most * scale) and not confined.any()):
            break
        prices = (best + target * highest) / 2
        highest = np.where(confined, GROWTH * highest, highest)
    return best


@compiled
def _shortest_path(
    order: Ints, copies: Copies, round_trip: Floats, paid: Payments, prices: Floats
) -> tuple[float, Floats]:
    """The round trip of a shortest path with prices, without them, and how much it uses of what has a price."""
    num_copies = copies.size
    least, next_arc = np.full(num_copies, np.inf), np.full(num_copies, -1)
    least[-1] = 0.0
    for arc in order[::-1]:
        own = round_trip[arc] + price_of(paid, arc, prices)
        for position in range(copies.least[arc], copies.largest[arc] + 1):
            node, length = copies.tail[arc] + position, least[copies.head[arc] + position] + own
            if length < np.inf and length <= least[node]:
                least[node], next_arc[node] = length, arc
    used, total, node = np.zeros(len(prices)), 0.0, 0
    for source in range(copies.of_nodes[0]):
        if least[source] < least[node]:
            node = source
    if copies.of_nodes[0] == 0 or least[node] == np.inf:
        return np.inf, used
    while node != num_copies - 1:
        arc = next_arc[node]
        used[paid.unit[arc]] += paid.amount[arc]
        total += round_trip[arc]
        node += copies.head[arc] - copies.tail[arc]
    return total, used


@compiled
def best_of_cuts(lengths: Floats, slopes: Floats) -> tuple[Floats, float]:
    """Prices x, 0 <= x <= 1, of nearly the largest z with z <= length_k + slope_k x for all k, and a bound on z.

    Newton's method on the barrier t z + sum of log (length_k + slope_k x - z) + sum of log x + log (1 - x), with
    growing t: at its maximum z is at most (number of logarithms) / t below the optimum. `slopes` end with -1, for z.
    """
    num_cuts, size = slopes.shape
    num_logs, weight = num_cuts + 2 * (size - 1), 1.0
    point, least = np.full(size, 0.5), np.inf
    for k in range(num_cuts):
        least = min(least, lengths[k] + _product(slopes[k], point))
    point[-1] += least - 1.0
    inside = point.copy()
    for _ in range(STEPS):
        gradient, curvature = np.zeros(size), np.zeros((size, size))
        gradient[-1], least = weight, np.inf
        for j in range(size - 1):
            least = min(least, point[j], 1.0 - point[j])
        for k in range(num_cuts):
            least = min(least, lengths[k] + _product(slopes[k], point))
        if not least > 0.0:
            break  # rounding has led outside
        inside = point.copy()
        for k in range(num_cuts):
            slack = lengths[k] + _product(slopes[k], point)
            for i in range(size):
                gradient[i] += slopes[k, i] / slack
                for j in range(size):
                    curvature[i, j] += slopes[k, i] / slack * (slopes[k, j] / slack)
        for j in range(size - 1):
            low, high = 1.0 / point[j], 1.0 / (1.0 - point[j])
            gradient[j] += low - high
            curvature[j, j] += low**2 + high**2
        step = _solved(curvature, gradient)
        decrement = _product(gradient, step)
        # A step of this length stays inside: the barrier is self-concordant.
        for j in range(size):
            point[j] += step[j] / (1.0 + math.sqrt(max(0.0, decrement)))
        if decrement < 0.25:
            if num_logs <= NEAR_OPTIMUM * weight:
                break
            weight *= WEIGHT_GROWTH
    return inside[:-1], inside[-1] + 2.0 * num_logs / weight


@compiled
def _product(first: Floats, second: Floats) -> float:
    total = 0.0
    for i in range(len(first)):
        total += first[i] * second[i]
    return total


@compiled
def _solved(matrix: Floats, right: Floats) -> Floats:
    """The solution of a positive definite system, by elimination in place; 0 where rounding leaves none."""
    size, solution = len(right), right.copy()
    for i in range(size):
        if not matrix[i, i] > 0.0:
            return np.zeros(size)
        for row in range(i + 1, size):
            factor = matrix[row, i] / matrix[i, i]
            solution[row] -= factor * solution[i]
            for j in range(i, size):
                matrix[row, j] -= factor * matrix[i, j]
    for i in range(size - 1, -1, -1):
        for j in range(i + 1, size):
            solution[i] -= matrix[i, j] * solution[j]
        solution[i] /= matrix[i, i]
    return solution
