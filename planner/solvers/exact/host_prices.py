"""Prices of hosts that make the shortest path through a network long: a Lagrangian dual, by cutting planes.

    max over mu >= 0 of g(mu),   g(mu) = min over paths of (round trip + mu x hosts opened) - mu N,

with a reward for every stage as the last of the prices, is concave and piecewise linear. Each shortest
path found is a cut of a small linear program; the next prices are half way from the best ones so far
to its optimum.
"""

import math
from collections.abc import Callable

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.compiled import compiled
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.pruning import Payments, payments, price_of
from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.search.options import StopCheck

MAX_ROUNDS = 40
GAIN_TOLERANCE = 1e-3
"""The search ends when the relative gain still possible is no more than this; half and twice as much changed no plan
and no bound on vgg16 and resnet50 on mixed-server-8."""
NEAR_OPTIMUM = 1e-4
"""How far the optimum of the program of cuts may be missed, relative to the longest path: less than is gained by it."""
STEPS, WEIGHT_GROWTH = 200, 4.0
"""Most steps of Newton's method in one such program, and what t grows by."""
FIRST_REACH, REACH_GROWTH, NEAR_HIGHEST = 4.0, 8.0, 0.5
"""The highest price allowed at first, what it grows by, and the share of it that makes it grow."""
HIGHEST = 1e4
"""The highest price of a host, in round trips of a path. Where hosts do not suffice, the length grows with
prices without end, and only high ones reach what many micro-batches take. With 4, 2 of the 36 variants of llama3-70b on
128 devices of three types were ruled out at 0.99 of the best time; with 1e4, 30."""


def find_host_prices(rows: Rows, start: Floats, *, stop: StopCheck) -> Floats:
    """Prices of hosts and of a stage, shape (server classes + 1,), from those to begin with."""
    graph, paid = rows.network.graph, payments(rows)

    def shortest(prices: Floats) -> tuple[float, Floats]:
        return _shortest_path(graph.sorted_arcs, graph.num_nodes, rows.round_trip, paid, prices)

    return best_prices(shortest, rows.network.limits, start, stop=stop)


def best_prices(
    shortest: Callable[[Floats], tuple[float, Floats]], limits: Floats, start: Floats, *, stop: StopCheck
) -> Floats:
    """Good prices of what is limited, from those to begin with.

    `shortest` gives length, without prices, and use of a shortest path with them; the length is infinite if there is
    none.
    """
    lengths, slopes = [], []
    prices, best, best_value, reach = start, start, -np.inf, FIRST_REACH
    for _ in range(MAX_ROUNDS):
        length, used = shortest(prices)
        if length == np.inf:
            break
        slope = used - limits
        lengths.append(length)
        slopes.append(slope)
        value = length + float(prices @ slope)
        if value > best_value:
            best, best_value = prices, value
        # In units of the highest price allowed, all prices are between 0 and 1.
        unit = reach * (max(lengths) or 1.0)
        cuts = np.column_stack((np.array(slopes) / np.maximum(1.0, np.abs(limits)), np.full(len(slopes), -1.0)))
        target, most = best_of_cuts(np.array(lengths) / unit, cuts)
        if most * unit - best_value <= GAIN_TOLERANCE * abs(most * unit) or stop():
            break
        prices = (best + target * unit / np.maximum(1.0, np.abs(limits))) / 2
        if target.max() > NEAR_HIGHEST:
            reach = min(HIGHEST, REACH_GROWTH * reach)
    return best


@compiled
def _shortest_path(
    arcs: SortedArcs, num_nodes: int, round_trip: Floats, paid: Payments, prices: Floats
) -> tuple[float, Floats]:
    """The round trip of a shortest path with prices, without them, and how much it uses of what has a price."""
    least, next_arc = np.full(num_nodes, np.inf), np.full(num_nodes, -1)
    least[-1] = 0.0
    for arc in arcs.order[::-1]:
        node, length = arcs.tail[arc], least[arcs.head[arc]] + (round_trip[arc] + price_of(paid, arc, prices))
        if length < np.inf and length <= least[node]:
            least[node], next_arc[node] = length, arc
    used, total, node = np.zeros(len(prices)), 0.0, 0
    if least[0] == np.inf:
        return np.inf, used
    while node != num_nodes - 1:
        arc = next_arc[node]
        used[paid.unit[arc]] += paid.amount[arc]
        total += round_trip[arc]
        node = arcs.head[arc]
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
    for _ in range(STEPS):
        gradient, curvature = np.zeros(size), np.zeros((size, size))
        gradient[-1] = weight
        for k in range(num_cuts):
            slack = lengths[k] + _product(slopes[k], point)
            for i in range(size):
                gradient[i] += slopes[k, i] / slack
                for j in range(size):
                    curvature[i, j] += slopes[k, i] * slopes[k, j] / slack**2
        for j in range(size - 1):
            low, high = 1.0 / point[j], 1.0 / (1.0 - point[j])
            gradient[j] += low - high
            curvature[j, j] += low**2 + high**2
        step = _solved(curvature, gradient)
        decrement = _product(gradient, step)
        # A step of this size stays inside: the barrier is self-concordant.
        length = 1.0 / (1.0 + math.sqrt(max(0.0, decrement)))
        for j in range(size):
            point[j] += length * step[j]
        if decrement < 0.25:
            if num_logs <= NEAR_OPTIMUM * weight:
                break
            weight *= WEIGHT_GROWTH
    return point[:-1], point[-1] + 2.0 * num_logs / weight


@compiled
def _product(first: Floats, second: Floats) -> float:
    total = 0.0
    for i in range(len(first)):
        total += first[i] * second[i]
    return total


@compiled
def _solved(matrix: Floats, right: Floats) -> Floats:
    """The solution of a positive definite system, by elimination in place."""
    size, solution = len(right), right.copy()
    for i in range(size):
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
