"""All paths in time, one after another: what labels leave, where that is little.

Depth first, a path keeps its own lengths, with which no other path's are mixed, and turns back where an arc is late or
a length beyond the :mod:`latest <stagecut.planner.network.labels.latest>` at a counted node.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.network.labels.counted_nodes import NONE, after_arc
from stagecut.planner.network.labels.forwards_played import Played, none_played, play_further
from stagecut.planner.network.labels.latest import in_time
from stagecut.planner.network.labels.lengths import START
from stagecut.planner.network.labels.path_loops import Stages, extend_path, is_path_in_time, no_stages, set_stage
from stagecut.planner.network.labels.sweep import Sweep

STEPS_A_PATH = 40
"""Arcs that may be tried for each path found, at half a microsecond each."""


def all_paths(
    sweep: Sweep, latest: Floats, *, most_steps: int, most_paths: int, most_arcs: int, plays: bool
) -> Ints | None:
    """Arcs of all paths in time, then `NONE`, shape (paths, arcs of the longest); None if that takes too long.

    There are too many if there are more than `most_paths`, and it took too long if more than `most_steps` arcs were
    tried, and `STEPS_A_PATH` for each path found. With `plays`, the first forwards of each path are played, which needs
    arcs whose seconds and depths are those of the plan.
    """
    paths = np.empty((most_paths, most_arcs), dtype=np.int64)
    lengths = np.empty((most_arcs + 1, len(START)))
    most_depth = sweep.criteria.turns.largest_depth.max(initial=0) if plays else NONE
    played = none_played(most_arcs, int(most_depth))
    count = _set_paths(sweep, latest, most_steps, lengths, no_stages(most_arcs), played, paths)
    # Only what is in use is kept: there is room for a stage for each layer.
    return None if count == NONE else paths[:count, (paths[:count] != NONE).any(axis=0)]


@compiled
def _set_paths(
    sweep: Sweep,
    latest: Floats,
    most_steps: int,
    lengths: Floats,
    stages: Stages,
    played: Played,
    paths: Ints,
) -> int:
    """Set the arcs of all paths, as long as there is room; how many there are, or `NONE` if that takes too long.

    `lengths`, shape (arcs + 1, lengths), `stages` and `played` are room for those of one path.
    """
    sweep, latest, lengths, stages, played = borrowed((sweep, latest, lengths, stages, played))
    arcs, nodes, ways, depths = sweep.arcs, sweep.nodes, sweep.room.ways, sweep.criteria.turns.depths
    most_arcs, sink = paths.shape[1], len(nodes.first) - 2
    leaving = np.searchsorted(arcs.tail[arcs.order], np.arange(sink + 2))
    for which in range(len(START)):
        lengths[0, which] = START[which]
    # Where the path is after each of its arcs, and which of the arcs that leave from there are next.
    here, node, turn, hosts = np.zeros((4, most_arcs + 1), np.int64)
    path, length, count, steps = np.full(most_arcs, NONE), 0, 0, 0
    hosts[0] = 0 if played.arrival.shape[1] > 0 else NONE
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
        terms, stage = sweep.terms[arc], length // 2
        before, after, way_on = lengths[length], lengths[length + 1], nodes.ways_on[head]
        taken = extend_path(terms, before, way_on, depths, sweep.thetas, ways, stages, stage, after)
        if not taken:
            continue
        path[length] = arc
        hosts[length + 1] = play_further(sweep, path[: length + 1], hosts[length], way_on[0], after, played)
        if not in_time(after, latest[head]):
            continue
        if terms.is_stage:
            set_stage(stages, stage, terms, way_on[0], ways, depths, before, after)
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
