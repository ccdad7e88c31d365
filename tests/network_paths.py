"""Paths of small networks one by one, for comparison with labels and programs."""

from dataclasses import replace

import numpy as np

from stagecut.planner.core.cluster import Link
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.decode import decode_path
from stagecut.planner.network.stage_network import build_network, with_positions


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


def all_paths(network):
    """Every path of a stage network from source to sink."""
    return paths_between(network.arcs.tail, network.arcs.head, 0, network.graph.num_nodes - 1)


def paths_by_plan(network):
    """The path of every plan of a stage network. Two paths never stand for one plan."""
    found = {}
    for path in all_paths(network):
        plan = decode_path(network, path)
        if plan is not None:
            assert plan not in found
            found[plan] = path
    return found


def plan_paths(network):
    """Every path that opens no more hosts than there are, and fits in memory."""
    return list(paths_by_plan(network).values())


def coarse_network(problem, **choices):
    """The network without positions of a problem's first variant."""
    return build_network(CostModel(problem), problem.variants[0], **choices)


def positioned_network(problem, **choices):
    """The network with positions of a problem's first variant."""
    return with_positions(coarse_network(problem, **choices))


def with_queues(problem):
    """Replicas are allowed, and every fabric is slow and shared, so that most all-reduces stand in line."""
    slow = Link(bandwidth_bytes_per_s=2.0)
    servers = tuple(
        replace(server, islands=tuple(replace(island, fabric=slow, shared=True) for island in server.islands))
        for server in problem.cluster.servers
    )
    job = replace(problem.job, replicas=None, global_batch=2 * problem.job.global_batch, micro_batches=(2,))
    return replace(problem, cluster=replace(problem.cluster, servers=servers), job=job)
