"""Cheapest paths with both lengths kept exactly: Pareto sets of labels, for small networks."""

from collections import defaultdict

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Ints
from stagecut.planner.network.labels.counted_paths import TooManyLabelsError
from stagecut.planner.network.labels.criteria import Criteria
from stagecut.planner.network.stage_network import StageNetwork

MAX_LABELS = 400_000

State = tuple[int, tuple[int, ...]]
"""A node and the hosts opened so far, per class."""
Label = tuple[float, float, State | None, int, int]
"""Round trip, forward part, state before, index of the label there, arc taken."""


def pareto_path(network: StageNetwork, criteria: Criteria, usable: Bools) -> Ints | None:
    """Arcs of a path of least round trip over usable arcs, each taken in time; None if there is none.

    Loops, and limits on lengths with the way on, are ignored.

    Raises
    ------
    TooManyLabelsError
        If more than `MAX_LABELS` labels would be kept.
    """
    columns = network.arcs
    latest, latest_forward = criteria.round_trip_limits.alone, criteria.forward_limits.alone
    outgoing: dict[int, list[int]] = defaultdict(list)
    for arc in np.flatnonzero(usable).tolist():
        outgoing[int(columns.tail[arc])].append(arc)
    limits = tuple(server.count for server in network.cluster.servers)
    start: State = (0, (0,) * len(limits))
    waiting: dict[int, dict[State, list[Label]]] = defaultdict(dict)
    waiting[0][start] = [(0.0, 0.0, None, -1, -1)]
    kept: dict[State, list[Label]] = {}
    num_labels = 0
    # Arcs lead to higher nodes, so all labels of a node are known when its turn comes.
    for node in sorted({0, *map(int, columns.head[usable])}):
        for state, candidates in waiting.pop(node, {}).items():
            kept[state] = labels = _undominated(candidates)
            num_labels += len(labels)
            if num_labels > MAX_LABELS:
                raise TooManyLabelsError
            for arc in outgoing[node]:
                target = _after(network, state, arc, limits)
                if target is None:
                    continue
                extended = [
                    (label[0] + criteria.round_trip[arc], label[1] + criteria.forward[arc], state, index, arc)
                    for index, label in enumerate(labels)
                    if label[0] <= latest[arc] and label[1] <= latest_forward[arc]
                ]
                if extended:
                    waiting[target[0]].setdefault(target, []).extend(extended)
    sink = network.graph.num_nodes - 1
    ends = [state for state in kept if state[0] == sink]
    if not ends:
        return None
    return _walk_back(kept, min(ends, key=lambda state: kept[state][0][0]))


def _undominated(candidates: list[Label]) -> list[Label]:
    """Labels that no other one beats or equals in both lengths, the least round trip first."""
    # In order of round trips a label is undominated if its forward part is below that of all before it.
    best_forward = np.inf
    found = []
    for label in sorted(candidates, key=lambda label: label[:2]):
        if label[1] < best_forward:
            found.append(label)
            best_forward = label[1]
    return found


def _after(network: StageNetwork, state: State, arc: int, limits: tuple[int, ...]) -> State | None:
    columns, opened = network.arcs, list(state[1])
    server_class, num_hosts = int(columns.opened_class[arc]), int(columns.opened_hosts[arc])
    if num_hosts > 0:
        opened[server_class] += num_hosts
        if opened[server_class] > limits[server_class]:
            return None
    return int(columns.head[arc]), tuple(opened)


def _walk_back(kept: dict[State, list[Label]], end: State) -> Ints:
    path = []
    label = kept[end][0]
    while label[2] is not None:
        path.append(label[4])
        label = kept[label[2]][label[3]]
    return np.array(path[::-1])
