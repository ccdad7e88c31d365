"""Nodes of a stage network with the count states in which a plan may be there in time, and the ways on from them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled, inlined
from stagecut.planner.core.numerics.tolerances import LABEL_SUM
from stagecut.planner.network.graph import SortedArcs
from stagecut.planner.network.labels.arc_terms import turns_here
from stagecut.planner.network.labels.criteria import Criteria
from stagecut.planner.network.labels.lengths import lower_ways

NONE = -1


class Openings(NamedTuple):
    """How arcs open hosts. Count states number the vectors of hosts opened per class in mixed radix."""

    server_class: Ints
    hosts: Ints
    """Hosts that the arc opens, shape (A,)."""
    steps: Ints
    """By how much the arc moves the number of the count state, shape (A,)."""
    left: Ints
    """Hosts of each class not yet opened in each count state, shape (classes, H)."""


class CountedNodes(NamedTuple):
    """C counted nodes, sorted by node: 0 is the source with no host opened, if there is a way on from it."""

    number: NDArray[np.int32]
    """Number plus one of the node in each count state, 0 where it is none, shape (nodes, H)."""
    first: Ints
    """Those at node n are number first[n] to first[n + 1] less one, shape (nodes + 1,)."""
    state: NDArray[np.int32]
    """Shape (C,)."""
    ways_on: Floats
    """Least round trip to the sink, and to the stages of the other depths, over arcs in time; shape (C, turns)."""

    @property
    def has_source(self) -> bool:
        """Whether there is a way from source to sink."""
        return bool(self.first[1] > 0)

    def at_sink(self) -> Ints:
        """The numbers of those at the sink."""
        return np.arange(self.first[-2], self.first[-1])


class Found(NamedTuple):
    """Counted nodes as they are found; those of a node from `last` along `before` to `NONE`.

    There is room for more than are found; what is not touched takes no memory.
    """

    last: NDArray[np.int32]
    """Shape (nodes,)."""
    before: NDArray[np.int32]
    """Shape (room,), as the following."""
    state: NDArray[np.int32]
    round_trip: Floats


class Reached(NamedTuple):
    """Counted nodes that paths in time reach, with all but `round_trip` as above."""

    number: NDArray[np.int32]
    """While it is not known whether more are found at a node: as they are found."""
    first: Ints
    state: NDArray[np.int32]
    round_trip: Floats
    """The least round trip of a path to each."""


class Deadlines(NamedTuple):
    """How long a path to a node may be, if the way on opens at most so many hosts of one class and pays for the others.

    A way on that pays no more than all hosts left cost is longer by as much, whatever the prices; none are charged in
    the first row.
    """

    prices: Floats
    """Of a host of each class, shape (rows, classes)."""
    latest: Floats
    """Less the price of the hosts left of the other classes, shape (rows, nodes, K), K being the sum of the number of
    hosts of each class plus one."""
    column: Ints
    """The column of each class and count state, shape (classes, H)."""


def counted_nodes(
    arcs: SortedArcs, openings: Openings, criteria: Criteria, prices: Floats, num_nodes: int, most: int
) -> CountedNodes | None:
    """Those on a way from source to sink that is in time for its round trip; None if more than `most` are reached.

    Deadlines come first, with the prices of each row, shape (rows, classes); then ways from the source that meet them,
    then ways on from what these reach.
    """
    num_states, deadlines = openings.left.shape[1], _deadlines(arcs, openings, criteria, prices, num_nodes)
    number, first = np.zeros((num_nodes, num_states), np.int32), np.zeros(num_nodes + 1, np.int64)
    last, (before, state) = np.full(num_nodes, NONE, np.int32), np.empty((2, most), np.int32)
    found = Found(last, before, state, np.empty(most))
    reached = Reached(number, first, np.empty(most, np.int32), np.empty(most))
    if most == 0 or not _reach(arcs, openings, criteria, deadlines, found, reached):
        return None
    ways_on = np.full((first[-1], len(criteria.turns.depths)), np.inf)
    _set_ways_on(arcs, openings, criteria, reached, ways_on)
    return CountedNodes(number, *_with_way_on(reached, ways_on))


@inlined
def after_arc(arcs: SortedArcs, openings: Openings, number: NDArray[np.int32], arc: int, state: int) -> int:
    """The counted node that an arc leads to, or `NONE`: it has too few hosts left, or is not there in time."""
    if openings.left[openings.server_class[arc], state] < openings.hosts[arc]:
        return NONE
    return int(number[arcs.head[arc], state + openings.steps[arc]]) - 1


@compiled
def _reach(
    arcs: SortedArcs, openings: Openings, criteria: Criteria, deadlines: Deadlines, found: Found, reached: Reached
) -> bool:
    """Find the counted nodes that paths in time for their round trip reach; False if there is no room."""
    reached.number[0, 0], num_found, node = 1, 1, NONE
    found.last[0], found.before[0], found.state[0], found.round_trip[0] = 0, NONE, 0, 0.0
    for arc in arcs.order:
        while node < arcs.tail[arc]:
            node += 1
            _settle(found, openings.left, deadlines, reached, node)
        head, hosts, step, length = arcs.head[arc], openings.hosts[arc], openings.steps[arc], criteria.round_trip[arc]
        left, number = openings.left[openings.server_class[arc]], reached.number[head]
        latest = min(criteria.round_trip_limits.alone[arc], deadlines.latest[0, head].max() - length)
        for here in range(reached.first[node], reached.first[node + 1]):
            before, state = reached.round_trip[here], reached.state[here]
            if before > latest or left[state] < hosts:
                continue
            after = number[state + step] - 1
            if after == NONE:
                if num_found == len(found.state):
                    return False
                after = num_found
                num_found += 1
                number[state + step] = num_found
                found.state[after], found.round_trip[after] = state + step, np.inf
                found.before[after], found.last[head] = found.last[head], after
            found.round_trip[after] = min(found.round_trip[after], before + length)
    while node < len(reached.number) - 1:
        node += 1
        _settle(found, openings.left, deadlines, reached, node)
    return True


@inlined
def _settle(found: Found, left: Ints, deadlines: Deadlines, reached: Reached, node: int) -> None:
    """Number those at a node, to which no further arc leads, leaving out those that come too late."""
    count, one = reached.first[node], found.last[node]
    while one != NONE:
        state, before, in_time = found.state[one], found.round_trip[one], True
        for row in range(len(deadlines.prices)):
            in_time &= _is_in_time(before, left, deadlines, row, node, state)
        if in_time:
            reached.state[count], reached.round_trip[count] = state, before
            count += 1
        reached.number[node, state] = count if in_time else 0
        one = found.before[one]
    reached.first[node + 1] = count


@inlined
def _is_in_time(before: float, left: Ints, deadlines: Deadlines, row: int, node: int, state: int) -> bool:
    """Whether a path comes in time, by the prices of one row."""
    budget, in_time = 0.0, True
    for server_class in range(len(left)):
        budget += deadlines.prices[row, server_class] * left[server_class, state]
    for server_class in range(len(left)):
        paid = budget - deadlines.prices[row, server_class] * left[server_class, state]
        in_time &= before - paid <= deadlines.latest[row, node, deadlines.column[server_class, state]]
    return bool(in_time)


def _deadlines(arcs: SortedArcs, openings: Openings, criteria: Criteria, prices: Floats, num_nodes: int) -> Deadlines:
    num_hosts = openings.left[:, 0]
    begin = np.concatenate(([0], np.cumsum(num_hosts + 1)))
    prices = np.vstack((np.zeros(len(num_hosts)), prices))
    latest = np.full((len(prices), num_nodes, begin[-1]), -np.inf)
    for row, chosen in enumerate(prices):
        # Sums from the sink and from the source differ by rounding.
        scale_s = criteria.limit + float(chosen @ num_hosts)
        _set_latest(
            arcs, openings, criteria, begin, chosen, LABEL_SUM * scale_s if scale_s < np.inf else 0.0, latest[row]
        )
    return Deadlines(prices, latest, begin[:-1, None] + openings.left)


@compiled
def _set_latest(
    arcs: SortedArcs,
    openings: Openings,
    criteria: Criteria,
    begin: Ints,
    prices: Floats,
    slack: float,
    latest: Floats,
) -> None:
    """Set the deadlines at some prices; the columns of a class begin at `begin`."""
    on = np.full(latest.shape, np.inf)
    on[-1], latest[-1] = 0.0, np.inf
    for arc in arcs.order[::-1]:
        tail, head = arcs.tail[arc], arcs.head[arc]
        alone = criteria.round_trip_limits.alone[arc] + slack
        with_way_on = criteria.round_trip_limits.with_way_on[arc] + slack
        for server_class in range(len(begin) - 1):
            step, length = openings.hosts[arc], criteria.round_trip[arc]
            if server_class != openings.server_class[arc]:
                step, length = 0, length + prices[openings.server_class[arc]] * step
            for column in range(begin[server_class] + step, begin[server_class + 1]):
                rest = length + on[head, column - step]
                if rest < np.inf:
                    before = min(alone, with_way_on - rest, latest[head, column - step] - length)
                    latest[tail, column] = max(latest[tail, column], before)
                    on[tail, column] = min(on[tail, column], rest)


@compiled
def _set_ways_on(arcs: SortedArcs, openings: Openings, criteria: Criteria, reached: Reached, ways_on: Floats) -> None:
    """Set the ways on, infinite where there is none in time."""
    arcs, openings, criteria, reached, ways_on = borrowed((arcs, openings, criteria, reached, ways_on))
    ways_on[reached.first[-2] :, 0] = 0.0
    for arc in arcs.order[::-1]:
        node, length, limits = arcs.tail[arc], criteria.round_trip[arc], criteria.round_trip_limits
        turns = turns_here(criteria.turns, arc)
        for here in range(reached.first[node], reached.first[node + 1]):
            after = after_arc(arcs, openings, reached.number, arc, reached.state[here])
            if after != NONE and reached.round_trip[here] + (length + ways_on[after, 0]) <= limits.with_way_on[arc]:
                lower_ways(length, turns, ways_on[after], ways_on[here])


@compiled
def _with_way_on(reached: Reached, ways_on: Floats) -> tuple[Ints, NDArray[np.int32], Floats]:
    """Leave out those without a way on, and number the others anew."""
    count, begin = 0, 0
    for node in range(len(reached.number)):
        end = reached.first[node + 1]
        for here in range(begin, end):
            state = reached.state[here]
            reached.number[node, state] = 0
            if ways_on[here, 0] < np.inf:
                reached.state[count] = state
                for turn in range(ways_on.shape[1]):
                    ways_on[count, turn] = ways_on[here, turn]
                count += 1
                reached.number[node, state] = count
        begin, reached.first[node + 1] = end, count
    return reached.first, reached.state[:count].copy(), ways_on[:count].copy()
