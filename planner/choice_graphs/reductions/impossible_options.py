"""Options that no legal choice contains."""

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE
from stagecut.planner.choice_graphs.reductions.workbench import Workbench


def drop_impossible_options(bench: Workbench, node: int) -> bool:
    """Take out the options of a node that are impossible by themselves or with all options of some neighbour.

    Proof: a choice with such an option contains an impossible option or pair, whatever the neighbour chooses.
    """
    kept = bench.cost[node] < IMPOSSIBLE
    for table in bench.tables[node].values():
        kept &= (table < IMPOSSIBLE).any(axis=1)
    if kept.all():
        return False
    bench.keep_options(node, np.asarray(kept))
    return True
