"""Options that another one of the same node can always replace."""

import numpy as np

from stagecut.planner.choice_graphs.graph import IMPOSSIBLE
from stagecut.planner.choice_graphs.reductions.workbench import Workbench
from stagecut.planner.core.numerics.arrays import Bools, Ints


def drop_dominated_options(bench: Workbench, node: int) -> bool:
    """Take out options p for which the node has another option r that is never dearer and never uses more.

    With r in place of p, whatever the neighbours w choose, a choice changes by at most

        c_r - c_p + sum over w of max over q of (T_w[r, q] - T_w[p, q]),

    where q runs over options that p allows, and r must allow these too. If that is at most 0, and r uses no more
    memory than p or the node is slack, every legal choice with p can be made one with r that is no dearer. (Goldstein,
    Biophys. J. 66, 1994, has this as a criterion for dead ends.) Of options that replace each other the first stays.
    """
    if len(bench.cost[node]) == 1:
        return False
    never_dearer = _largest_change(bench, node) <= 0
    if not bench.is_slack[node]:
        usage = bench.usage[node]
        never_dearer &= usage[:, None] <= usage
    kept = np.ones(len(never_dearer), dtype=np.bool_)
    for option in range(len(kept) - 1, -1, -1):
        replaceable = never_dearer[:, option] & kept
        replaceable[option] = False
        kept[option] = not replaceable.any()
    if kept.all():
        return False
    bench.keep_options(node, kept)
    return True


def _largest_change(bench: Workbench, node: int) -> Ints:
    """(r, p): by how much a choice can become dearer with r in place of p; IMPOSSIBLE if r may not be allowed."""
    cost = bench.cost[node]
    change = cost[:, None] - cost
    forbidden: Bools = np.zeros(change.shape, dtype=np.bool_)
    for table in bench.tables[node].values():
        possible = table < IMPOSSIBLE
        difference = table[:, None, :] - table
        difference[~np.broadcast_to(possible, difference.shape)] = -IMPOSSIBLE
        forbidden |= (possible & ~possible[:, None, :]).any(axis=2)
        change += difference.max(axis=2)
    change[forbidden] = IMPOSSIBLE
    return change
