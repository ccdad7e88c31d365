"""All paths in time, one after another: what labels leave, where that is little.

Depth first, a path keeps its own lengths, with which no other path's are mixed, and turns back where an arc is late or
a length beyond the :mod:`latest <stagecut.planner.network.labels.latest>` at a counted node.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.network.labels.arc_terms import set_terms
from stagecut.planner.network.labels.counted_nodes import NONE, after_arc
from stagecut.planner.network.labels.latest import in_time
from stagecut.planner.network.labels.lengths import START
from stagecut.planner.network.labels.path_loops import extend_path, is_path_in_time, no_stages, set_stage
from stagecut.planner.network.labels.sweep import Sweep

STEPS_A_PATH = 40
"""Arcs that may be tried for each path found, at half a microsecond each."""


@compiled
def set_paths(sweep: Sweep, latest: Floats, most_steps: int, paths: Ints) -> int:
    """Set the arcs of all paths in time, then `NONE`, shape (paths, arcs); how many, or `NONE` if that takes too long.

    There are too many if there is no room for one, and it took too long if more than `most_steps` arcs were tried, and
    `STEPS_A_PATH` for each path found.
    """
    arcs, nodes, depths = sweep.arcs, sweep.nodes, sweep.criteria.turns.depths
    most_arcs, sink = paths.shape[1], len(nodes.first) - 2
    leaving = np.searchsorted(arcs.tail[arcs.order], np.arange(sink + 2))
    lengths, ways, stages = np.empty((most_arcs + 1, len(START))), nodes.ways_on[0].copy(), no_stages(most_arcs)
    terms = sweep.terms[0]
    for which in range(len(START)):
        lengths[0, which] = START[which]
    # Where the path is after each of its arcs, and which of the arcs that leave from there are next.
    here, node, turn = np.zeros((3, most_arcs + 1), np.int64)
    path, length, count, steps = np.full(most_arcs, NONE), 0, 0, 0
    while length >= 0:
        if turn[length] == leaving[node[length] + 1]:
            length -= 1
            continue
        arc = arcs.order[turn[length]]
        turn[length] += 1
        head = after_arc(arcs, sweep.openings, nodes.number, arc, nodes.state[here[length]])
        if head == NONE:
            continue
        steps += 1
        if steps > most_steps + STEPS_A_PATH * count:
            return NONE
        set_terms(sweep.criteria, arc, terms)
        before, after, way_on, stage = lengths[length], lengths[length + 1], nodes.ways_on[head], length // 2
        taken = extend_path(terms, before, way_on, depths, sweep.thetas, ways, stages, stage, after)
        if not taken or not in_time(after, latest[head]):
            continue
        if terms.is_stage:
            set_stage(stages, stage, terms, way_on[0], ways, depths, before, after)
        path[length] = arc
        length += 1
        if arcs.head[arc] < sink:
            here[length], node[length], turn[length] = head, arcs.head[arc], leaving[arcs.head[arc]]
            continue
        if is_path_in_time(sweep, path[:length], lengths, ways, stages):
            if count == len(paths):
                return NONE
            for which in range(most_arcs):
                paths[count, which] = path[which] if which < length else NONE
            count += 1
        length -= 1
    return count


def one_by_one(paths: Ints) -> list[Ints]:
    """The arcs of each path, without those that stand for none."""
    return [path[path != NONE] for path in paths]
