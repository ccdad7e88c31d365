"""Nodes of one colour merged into one, where that keeps the graph acyclic."""

from collections.abc import Mapping


def merge_classes(
    colours: Mapping[int, int | str | None], edges: set[tuple[int, int]]
) -> tuple[dict[int, int], tuple[int | str, ...]]:
    """Merge the nodes of each colour, one colour after another in the order of their first nodes.

    A node without a colour has None; an edge is a pair of a node and a node that reads it. Returns the group of every
    node, named by one of its nodes, and the colours whose nodes stay apart because a path between them through other
    groups would close a cycle.
    """
    group_of = {node: node for node in colours}
    members: dict[int | str, list[int]] = {}
    for node, colour in colours.items():
        if colour is not None:
            members.setdefault(colour, []).append(node)
    successors: dict[int, set[int]] = {node: set() for node in colours}
    for source, target in edges:
        successors[source].add(target)
    apart = []
    for colour, nodes in members.items():
        if len(nodes) > 1 and _closes_cycle(set(nodes), successors):
            apart.append(colour)
        elif len(nodes) > 1:
            _join(nodes, successors, group_of)
    return group_of, tuple(apart)


def _closes_cycle(nodes: set[int], successors: Mapping[int, set[int]]) -> bool:
    """Whether a path leads out of these nodes and back to one of them."""
    seen = set().union(*(successors[node] for node in nodes)) - nodes
    waiting = list(seen)
    while waiting:
        for later in successors[waiting.pop()]:
            if later in nodes:
                return True
            if later not in seen:
                seen.add(later)
                waiting.append(later)
    return False


def _join(nodes: list[int], successors: dict[int, set[int]], group_of: dict[int, int]) -> None:
    """Merge the nodes into one, named by the first."""
    first, gone = nodes[0], set(nodes[1:])
    for node in gone:
        group_of[node] = first
        successors[first] |= successors.pop(node)
    successors[first] -= {first, *gone}
    for later in successors.values():
        if later & gone:
            later -= gone
            later.add(first)
    successors[first].discard(first)
