"""How the plans of a network with positions are divided in two, once they all have as many stages."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Ints
from stagecut.planner.network.arcs import Arcs


def by_boundary(arcs: Arcs, stages: Ints) -> tuple[Bools, Bools] | None:
    """The arcs of the plans in which a boundary comes early, and of those in which it comes late; shape (A,).

    It is that between two stages of a path, or of their neighbours, that divides the stages at one position most
    evenly. None if at every position of the path all stages have the same layers.

    Parameters
    ----------
    stages
        The stages of the path, as numbers of arcs.
    """
    most_even, divided = 0, None
    for position in arcs.least_position[stages]:
        here = arcs.is_stage & (arcs.least_position == position)
        for boundary in (arcs.stop, arcs.start):
            layers, counts = np.unique(boundary[here], return_counts=True)
            num_early = np.cumsum(counts[:-1])
            num_fewer = np.minimum(num_early, counts.sum() - num_early)
            if num_fewer.max(initial=0) > most_even:
                is_late = boundary > layers[num_fewer.argmax()]
                most_even, divided = int(num_fewer.max()), (~here | ~is_late, ~here | is_late)
    return divided


def by_stage(arcs: Arcs, stage: int) -> tuple[Bools, Bools]:
    """The arcs of the plans with a stage, and of those without; shape (A,)."""
    is_it = np.arange(len(arcs)) == stage
    return ~rivals(arcs, stage) | is_it, ~is_it


def rivals(arcs: Arcs, stage: int) -> Bools:
    """The arcs over some layer of a stage, itself included; shape (A,)."""
    overlaps: Bools = (arcs.start < arcs.stop[stage]) & (arcs.stop > arcs.start[stage])
    return overlaps
