"""Options too large for the room that the least usages of the other nodes leave."""

import numpy as np

from stagecut.planner.choice_graphs.moments import find_moments
from stagecut.planner.choice_graphs.reductions.workbench import Workbench


def drop_oversized_options(bench: Workbench) -> bool:
    """Take out options that exceed the limit at some moment even if all others use the least.

    Proof: at that moment every choice with this option uses at least so much.
    """
    graph, nodes = bench.assemble()
    moments = find_moments(graph)
    changed = False
    for place in np.flatnonzero(moments.begin < moments.end).tolist():
        room = moments.room[moments.begin[place] : moments.end[place]].min()
        kept = bench.usage[nodes[place]] - moments.least_usage[place] <= room
        if not kept.all():
            bench.keep_options(nodes[place], kept)
            changed = True
        if bench.is_stuck():
            break
    return changed
