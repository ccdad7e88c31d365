"""How the plans of a network with positions are divided in two, once they all have as many stages."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.network.rows import Rows

LITTLE = 1e-9
"""Rise that any division counts for, so that the most even one is made where no length rises on both sides."""

TINY_S = 1e-12
"""A length may be nothing."""


def halves(rows: Rows, path: Ints) -> tuple[Bools, Bools] | None:
    """The arcs of the plans on either side of one division, shape (A,); None if no stage of the path has another.

    The stages at one position are divided by their last layer, their first, their seconds of work or else by number,
    where that raises the least lengths of paths most on the side where it does less, and most evenly: the product of
    the sum of the relative rises and the number of stages, each on its smaller side, is largest. Labels mix what is
    least of each length, wherever it comes from; lengths that are least on different sides are no longer mixed.
    """
    arcs, lengths_s = rows.network.arcs, _lengths_s(rows)
    keys = (arcs.stop, arcs.start, arcs.forward_s + arcs.backward_s, np.arange(len(arcs)))
    best, divided = 0.0, None
    for position in arcs.least_position[path[arcs.is_stage[path]]]:
        is_here = arcs.is_stage & (arcs.least_position == position)
        here = np.flatnonzero(is_here)
        for key in keys:
            order = here[np.argsort(key[here], kind="stable")]
            last = np.flatnonzero(np.diff(key[order]))
            score = _scores(lengths_s[:, order], last)
            if score.max(initial=0.0) > best:
                best, is_high = score.max(), key > key[order[last[score.argmax()]]]
                divided = ~is_here | ~is_high, ~is_here | is_high
    return divided


def _lengths_s(rows: Rows) -> Floats:
    """Least lengths of paths through each arc, shape (lengths, A)."""
    through, backward = rows.network.graph.through, rows.round_trip - rows.forward
    round_trip = through(rows.round_trip)
    return np.array([round_trip, through(rows.forward), through(backward), round_trip + rows.bottleneck])


def _scores(lengths_s: Floats, last: Ints) -> Floats:
    """What each division of stages in order is worth, if the first side ends with the stage number `last`."""
    first_s = np.minimum.accumulate(lengths_s, axis=1)[:, last]
    second_s = np.minimum.accumulate(lengths_s[:, ::-1], axis=1)[:, ::-1][:, last + 1]
    least_s = np.minimum(first_s, second_s)
    rises = [((side_s - least_s) / np.maximum(least_s, TINY_S)).sum(axis=0) for side_s in (first_s, second_s)]
    num_stages = np.minimum(last + 1, lengths_s.shape[1] - 1 - last)
    scores: Floats = (np.minimum(*rises) + LITTLE) * num_stages
    return scores
