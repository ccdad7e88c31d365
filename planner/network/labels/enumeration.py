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

FIRST_STEPS, TOO_FAR = 3_000, 2.5
"""After so many arcs a search ends if, should the rest be like the share of all ways that it has been through, it would
take so many times too long or find so many times too many paths. At twice too many, searches in vain took a seventh to
a quarter of the arcs, and up to three in eight of those with success were lost, at five times half of the arcs and one
in five; docs/decisions.md has the numbers."""


def all_paths(
    sweep: Sweep, latest: Floats, *, most_steps: int, most_paths: int, most_arcs: int, plays: bool
) -> Ints | None:
    """Arcs of all paths in time, then `NONE`, shape (paths, arcs of the longest); None if that takes too long.

    There are too many if there are more than `most_paths`, and it took too long if more than `most_steps` arcs were
    tried, and `STEPS_A_PATH` for each path found; or if either is to be expected. With `plays`, the first forwards of
    each path are played, which needs arcs whose seconds and depths are those of the plan.
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
    # How many ways on there are in all from each counted node, and how many ways have been searched.
    ways_left, searched = _num_ways(sweep, leaving), 0.0
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
        searched += ways_left[head]
        if _is_too_much(steps, count, searched / ways_left[0], most_steps, len(paths)):
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
            searched -= ways_left[head]
            continue
        if is_path_in_time(sweep, path[:length], lengths, ways, stages):
            if count == len(paths):
                return NONE
            for which in range(most_arcs):
                paths[count, which] = path[which] if which < length else NONE
            count += 1
        length -= 1
    return count


@compiled
def _num_ways(sweep: Sweep, leaving: Ints) -> Floats:
    """How many ways lead from each counted node to the sink, in time or not, shape (C,).

    The arcs that leave node n begin at `leaving[n]` in the order of arcs.
    """
    arcs, nodes = sweep.arcs, sweep.nodes
    sink, ways = len(nodes.first) - 2, np.zeros(len(nodes.state))
    ways[nodes.first[sink] :] = 1.0
    for node in range(sink - 1, -1, -1):
        for here in range(nodes.first[node], nodes.first[node + 1]):
            for turn in range(leaving[node], leaving[node + 1]):
                head = after_arc(arcs, sweep.openings, nodes.number, arcs.order[turn], nodes.state[here])
                if head != NONE:
                    ways[here] += ways[head]
    return ways


@compiled
def _is_too_much(steps: int, count: int, share: float, most_steps: int, most_paths: int) -> bool:
    """Whether a search takes too long, or is to be expected to from the share of all ways that it has been through."""
    if steps > most_steps + STEPS_A_PATH * count:
        return True
    are_too_many = count > TOO_FAR * share * most_paths
    takes_too_long = steps > TOO_FAR * (share * most_steps + STEPS_A_PATH * count)
    return steps > FIRST_STEPS and (are_too_many or takes_too_long)


def one_by_one(paths: Ints) -> list[Ints]:
    """The arcs of each path, without those that stand for none."""
    return [path[path != NONE] for path in paths]
