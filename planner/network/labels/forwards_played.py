"""The first forwards of a path, played as the simulator does, host after host: in the order in which links serve them.

No gradient is back sooner than by the way on, and until then nothing behind a host has an effect on it. So messages
that are played up to there come when they would, and the others no sooner. Every sum is that of
:mod:`stagecut.planner.simulator.event_loop`, so that what is ready at the same time there is so here.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.numerics.tolerances import LABEL_SUM
from stagecut.planner.network.labels.counted_nodes import NONE
from stagecut.planner.network.labels.criteria import NUM_PASSAGES
from stagecut.planner.network.labels.lengths import FORWARD, PASSAGES
from stagecut.planner.network.labels.sweep import Sweep


class Played(NamedTuple):
    """What is known of the hosts of a path, in order; each array with room for more."""

    arrival: Floats
    """When micro-batches come to the first stage of each host, shape (hosts, largest warm-up depth)."""
    first: Ints
    """The arc of that stage, as number in the path."""
    ends: Floats
    """When each stage of the host being played ends its forwards, shape (stages, largest warm-up depth)."""
    num_ended: Ints
    """Forwards of each stage so far."""
    num_sent: Ints
    """Messages from each stage to the next one so far."""
    free: Floats
    """When each boundary of the host, or its fabric, has served all of these."""


def none_played(most_arcs: int, most_depth: int) -> Played:
    """All micro-batches are at the first host, and there is room for those that precede first backwards."""
    most = most_arcs // 2 + 1
    arrival, ends = np.zeros((2, most, max(0, most_depth)))
    num_ended, num_sent = np.zeros((2, most), np.int64)
    return Played(arrival, np.ones(most, np.int64), ends, num_ended, num_sent, np.zeros(most))


@compiled
def play_further(sweep: Sweep, path: Ints, host: int, way_on: float, after: Floats, played: Played) -> int:
    """Play the host that a path leaves with its last arc, if it does, and raise the passages after that arc.

    `way_on` leads on from there, and `after` has the lengths. Returns the number of the host that the path is on, or
    `NONE`, as before, if it is not played any further: bridges may serve other messages too.
    """
    transfer = sweep.terms[path[-1]]
    if transfer.after_home > -np.inf:
        return NONE
    if host == NONE or transfer.crossing == -np.inf:
        return host
    _play_host(sweep, path, host, way_on, after, played)
    return host + 1


@compiled
def _play_host(sweep: Sweep, path: Ints, host: int, way_on: float, after: Floats, played: Played) -> None:
    """Play all that a host does before the first gradient, and when what it sends comes to the next one."""
    terms, last, first = sweep.terms, len(path) - 1, played.first[host]
    num_stages = (last - first + 1) // 2
    _begin(terms, path, first, num_stages, host, played)
    _serve(terms, path, first, num_stages, played)
    played.first[host + 1] = last + 1
    sent, left = 0.0, played.ends[num_stages - 1]
    for number in range(played.num_ended[num_stages - 1]):
        sent = max(left[number], sent) + terms[path[last]].slow_forward
        played.arrival[host + 1, number] = sent
    returned = after[FORWARD] + way_on - LABEL_SUM * sweep.criteria.limit
    for which in range(NUM_PASSAGES):
        depth = sweep.criteria.turns.passages[which]
        if depth <= played.num_ended[num_stages - 1]:
            passage = min(played.arrival[host + 1, depth - 1], returned) - after[FORWARD]
            after[PASSAGES + which] = max(passage, after[PASSAGES + which])


@compiled
def _begin(terms: NDArray[np.void], path: Ints, first: int, num_stages: int, host: int, played: Played) -> None:
    """The forwards of the first stage of a host; those of the others, and all messages, are to come."""
    for stage in range(num_stages):
        played.num_ended[stage] = played.num_sent[stage] = 0
        played.free[stage] = 0.0
    for number in range(terms[path[first]].least_depth):
        _run(terms, path, first, 0, played.arrival[host, number], played)


@compiled
def _run(terms: NDArray[np.void], path: Ints, first: int, stage: int, arrival: float, played: Played) -> None:
    """Run the next forward of a stage, unless a backward comes before it."""
    own, number = terms[path[first + 2 * stage]], played.num_ended[stage]
    if number < own.least_depth:
        before = played.ends[stage, number - 1] if number > 0 else 0.0
        played.ends[stage, number] = max(before, arrival) + own.slow_forward
        played.num_ended[stage] += 1


@compiled
def _serve(terms: NDArray[np.void], path: Ints, first: int, num_stages: int, played: Played) -> None:
    """Serve the messages between the stages of a host; of several ready at once, that of the first stage."""
    while True:
        chosen, ready = -1, np.inf
        for boundary in range(num_stages - 1):
            number = played.num_sent[boundary]
            if number < played.num_ended[boundary] and played.ends[boundary, number] < ready:
                chosen, ready = boundary, played.ends[boundary, number]
        if chosen < 0:
            return
        transfer = terms[path[first + 2 * chosen + 1]]
        link = 0 if transfer.after_fabric > -np.inf else chosen
        played.free[link] = max(ready, played.free[link]) + transfer.slow_forward
        played.num_sent[chosen] += 1
        _run(terms, path, first, chosen + 1, played.free[link], played)
