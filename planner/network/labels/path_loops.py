"""The loops of a single path: of every stage, where a label follows one window; docs/bounds.md, "Turns"."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.network.labels.arc_terms import ArcTerms
from stagecut.planner.network.labels.lengths import (
    LOOP,
    NUM_LIMITED,
    PASSAGES,
    ROUND_TRIP,
    SLOW_FORWARD,
    START,
    extend,
    passage_before,
    turned_after,
)
from stagecut.planner.network.labels.sweep import Sweep


class Stages(NamedTuple):
    """The stages of a path, in order, each array with room for more."""

    turned: Floats
    """From the start of the first forward to the end of the first backward, less the g of the first stage."""
    before: Floats
    """The round trip before the stage, and the g of the first one, which is in no loop."""
    work: Floats
    """F + B."""
    depth: Ints
    """The largest warm-up depth."""


def no_stages(most: int) -> Stages:
    """Room for so many stages."""
    return Stages(np.empty(most), np.empty(most), np.empty(most), np.empty(most, np.int64))


@compiled
def set_stage(
    stages: Stages,
    stage: int,
    terms: ArcTerms,
    way_on: float,
    ways: Floats,
    depths: Ints,
    before: Floats,
    after: Floats,
) -> None:
    """Set a stage of a path from the lengths before and after it, and what :func:`extend` left in `ways`."""
    turned = turned_after(terms, terms.round_trip + way_on, ways, depths, before, after[SLOW_FORWARD])
    stages.turned[stage], stages.before[stage] = turned - terms.first_tail, before[ROUND_TRIP] + terms.first_tail
    stages.work[stage], stages.depth[stage] = terms.slow_forward + terms.slow_backward, terms.largest_depth


@compiled
def extend_path(
    terms: ArcTerms,
    before: Floats,
    ways_on: Floats,
    depths: Ints,
    thetas: Floats,
    ways: Floats,
    stages: Stages,
    num_stages: int,
    after: Floats,
) -> bool:
    """Like :func:`~stagecut.planner.network.labels.lengths.extend`, with all loops of a path of so many stages."""
    kept = before[LOOP]
    if terms.is_stage:
        before[LOOP] = max(kept, _loops(terms, stages, num_stages, before[ROUND_TRIP] + terms.round_trip))
    taken = extend(terms, before, ways_on, depths, thetas, ways, after)
    before[LOOP] = kept
    return bool(taken)


@compiled
def _loops(terms: ArcTerms, stages: Stages, num_stages: int, round_trip: float) -> float:
    """From the start of the first forward of a stage to that of its last one, by loops to the next stage or its own."""
    latest = -np.inf
    for stage in range(num_stages):
        left, work = terms.num_microbatches - stages.depth[stage] - 1, stages.work[stage]
        if left >= 0:
            carried = stages.depth[stage] - terms.least_depth + 1
            if carried <= 0:
                return np.inf  # depths do not rise along a plan
            gain = left // carried * (round_trip - stages.before[stage] - carried * work)
            latest = max(latest, stages.turned[stage] + left * work + max(0.0, gain))
    return latest


@compiled
def is_path_in_time(sweep: Sweep, path: Ints, lengths: Floats, ways: Floats, stages: Stages) -> bool:
    """Whether a whole path is, its ways on being known; `lengths` are those before and after its arcs."""
    depths, num_arcs = sweep.criteria.turns.depths, len(path)
    before, after, turned = START.copy(), START.copy(), -np.inf
    # Other paths share the first stages, but not the ways on from there.
    stages = Stages(np.empty(len(stages.turned)), stages.before, stages.work, stages.depth)
    # First backwards may turn at any later stage, so nothing need be known of the ways to some of them.
    ways_on = np.full(len(ways), -np.inf)
    for index in range(num_arcs - 1, 0, -2):
        terms = sweep.terms[path[index]]
        passage = passage_before(terms, lengths[index], lengths[index + 1, SLOW_FORWARD])
        turned = max(turned, lengths[index + 1, ROUND_TRIP] + passage)
        stages.turned[index // 2] = turned - terms.first_tail - lengths[index, ROUND_TRIP]
    for index in range(num_arcs):
        ways_on[0] = lengths[num_arcs, ROUND_TRIP] - lengths[index + 1, ROUND_TRIP]
        if not extend_path(
            sweep.terms[path[index]], before, ways_on, depths, sweep.thetas, ways, stages, index // 2, after
        ):
            return False
        before[:] = after
        before[PASSAGES:NUM_LIMITED] = lengths[index + 1, PASSAGES:NUM_LIMITED]
    return True
