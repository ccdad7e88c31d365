"""Merging of neighbouring nodes into layers where a cut between them is hardly ever useful.

Two rules:

- *idle nodes*: where nodes that take no time and have no weights stand between two that do, every boundary
  of that run splits the work alike, up to the activations of the idle nodes themselves. The one with the
  fewest bytes stays, the first among equals; none stays before the first working node or after the last.
- *branches*: where all data enters a stretch of the chain through one node and leaves it through another, the
  boundaries inside go if each carries at least as many bytes as the cheaper of the two ends, and if the whole
  stretch, as one layer, takes no more seconds, weights and saved bytes than the largest node of the model,
  which some stage holds in any case. With few stages the balance may suffer a little: of
  10 + (4 + 5) + 10 s, two stages take 19 and 10 s instead of 14 and 15.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from stagecut.planner.chains.task_graph import TaskGraph

MergedNodes = tuple[int, ...]
"""Nodes that make one layer, in order."""


def merged_groups(graph: TaskGraph, order: tuple[int, ...]) -> tuple[MergedNodes, ...]:
    """The layers of the chain, as groups of nodes."""
    crossing = graph.cut_bytes(order)
    kept = sorted(_kept_among_branches(graph, order, crossing, _kept_among_idle(graph, order, crossing)))
    cuts = [0, *kept, len(order)]
    return tuple(order[start:stop] for start, stop in pairwise(cuts))


def coarser_groups(graph: TaskGraph, groups: tuple[MergedNodes, ...], most: int) -> tuple[MergedNodes, ...]:
    """At most this many groups; see :func:`coarser_runs`."""
    seconds = [sum(graph.seconds[node] for node in group) for group in groups]
    runs = coarser_runs(seconds, most)
    return tuple(tuple(node for index in run for node in groups[index]) for run in runs)


def coarser_runs(
    seconds: Sequence[float], most: int, *, alike: Callable[[int], bool] = lambda _boundary: True
) -> list[range]:
    """At most this many runs of layers, made by merging the two neighbours that take the least time together.

    Neighbours that are not `alike`, asked by the boundary between them, are merged last.
    """
    stop = list(range(1, len(seconds) + 1))
    before = list(range(-1, len(seconds) - 1))
    total = list(seconds)
    num_runs = len(seconds)

    def pair(first: int, second: int) -> tuple[bool, float, int, int, int]:
        return not alike(second), total[first] + total[second], first, second, stop[second]

    pairs = [pair(second - 1, second) for second in range(1, len(seconds))]
    heapq.heapify(pairs)
    while num_runs > max(1, most):
        *_, first, second, end = heapq.heappop(pairs)
        # A pair is stale once either of its runs has grown or is gone.
        if stop[first] != second or stop[second] != end or before[second] != first:
            continue
        stop[first], total[first] = end, total[first] + total[second]
        before[second] = -1
        num_runs -= 1
        if end < len(seconds):
            before[end] = first
            heapq.heappush(pairs, pair(first, end))
        if before[first] >= 0:
            heapq.heappush(pairs, pair(before[first], first))
    starts = [0]
    while stop[starts[-1]] < len(seconds):
        starts.append(stop[starts[-1]])
    return [range(start, stop[start]) for start in starts]


def _kept_among_idle(graph: TaskGraph, order: tuple[int, ...], crossing: Sequence[float]) -> list[int]:
    """Inner boundaries that the rule on idle nodes keeps, in order."""
    working = [index for index, node in enumerate(order) if not graph.is_idle(node)]
    if not working:
        return []
    return [
        min(range(this + 1, other + 1), key=lambda boundary: crossing[boundary]) for this, other in pairwise(working)
    ]


def _kept_among_branches(
    graph: TaskGraph, order: tuple[int, ...], crossing: Sequence[float], kept: list[int]
) -> list[int]:
    """Inner boundaries that the rule on branches keeps as well."""
    largest = [max(amounts) for amounts in zip(*(_amounts(graph, (node,)) for node in order), strict=True)]
    dropped: set[int] = set()
    for start, stop in _stretches(graph, order, kept):
        inner = [boundary for boundary in kept if start < boundary < stop]
        better = min(crossing[end] for end in (start, stop) if end < len(order))
        small = all(a <= b for a, b in zip(_amounts(graph, order[start:stop]), largest, strict=True))
        if inner and small and all(crossing[boundary] >= better for boundary in inner):
            dropped.update(inner)
    return [boundary for boundary in kept if boundary not in dropped]


def _amounts(graph: TaskGraph, nodes: Sequence[int]) -> tuple[float, float, float]:
    """Seconds, weights and saved bytes of some nodes."""
    return (
        sum(graph.seconds[node] for node in nodes),
        sum(graph.nodes[node].params_bytes for node in nodes),
        sum(graph.nodes[node].saved_bytes for node in nodes),
    )


def _stretches(graph: TaskGraph, order: tuple[int, ...], kept: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of boundaries, each behind one of two consecutive waists: layers comparable to all others."""
    layer_of: dict[int, int] = {}
    cuts = [0, *kept, len(order)]
    for layer, (start, stop) in enumerate(pairwise(cuts)):
        layer_of.update(dict.fromkeys(order[start:stop], layer))
    waists = _waists(_layer_edges(graph, layer_of), len(cuts) - 1)
    for before, after in pairwise(waists):
        if after > before + 1:
            yield cuts[before + 1], cuts[after + 1]


def _layer_edges(graph: TaskGraph, layer_of: dict[int, int]) -> set[tuple[int, int]]:
    edges = ((layer_of[node], layer_of[user]) for node, users in enumerate(graph.successors) for user in users)
    return {(layer, later) for layer, later in edges if layer != later}


def _waists(edges: set[tuple[int, int]], num_layers: int) -> list[int]:
    """Layers that depend on all layers before them, and on which all layers after them depend."""
    needs = [0] * num_layers
    needed_by = [0] * num_layers
    for layer, later in sorted(edges, key=lambda edge: edge[1]):
        needs[later] |= needs[layer] | 1 << layer
    for layer, later in sorted(edges, key=lambda edge: -edge[0]):
        needed_by[layer] |= needed_by[later] | 1 << later
    related = (before.bit_count() + after.bit_count() for before, after in zip(needs, needed_by, strict=True))
    return [layer for layer, count in enumerate(related) if count == num_layers - 1]
