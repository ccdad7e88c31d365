"""Paths of small networks one by one, for comparison with labels and programs."""

import numpy as np

from planner.network.decode import decode_path


def paths_between(tail, head, source, sink):
    """Every path from source to sink as an array of arcs, by depth-first search."""
    outgoing = {}
    for arc, node in enumerate(tail.tolist()):
        outgoing.setdefault(node, []).append(arc)
    stack = [(source, ())]
    while stack:
        node, path = stack.pop()
        if node == sink:
            yield np.array(path, dtype=np.int64)
        stack.extend((int(head[arc]), (*path, arc)) for arc in outgoing.get(node, ()))


def plan_paths(network):
    """Every path of a stage network that opens no more hosts than there are."""
    arcs = network.arcs
    every = paths_between(arcs.tail, arcs.head, 0, network.graph.num_nodes - 1)
    return [path for path in every if decode_path(network, path) is not None]
