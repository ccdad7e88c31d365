"""HetPipe's partition of a model over a virtual worker: min-max of compute plus receive time.

Park et al., "HetPipe", USENIX ATC 2020, state it as a program for CPLEX; `solvers/papers/hetpipe.py` has it for HiGHS,
and a dynamic program over the layers gives the same optimum.
"""

import itertools

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.kinds import Counts
from stagecut.planner.workers.rows.min_max import min_max_stops
from stagecut.planner.workers.rows.row_tables import Setting

MOST_ORDERS = 24
"""The order of a worker's devices is left open by the paper: devices of a kind stand together."""


def paper_chain(chains: Chains, setting: Setting, pattern: Counts) -> Chain | None:
    """The stages whose slowest takes the least time to compute and to receive, over orders of kinds; None: no fit."""
    present = [kind for kind, count in enumerate(pattern) if count]
    best: tuple[float, Chain] | None = None
    for order in itertools.islice(itertools.permutations(present), MOST_ORDERS):
        kinds = tuple(kind for kind in order for _ in range(pattern[kind]))
        slowest_s, stops = min_max_stops(_seconds(chains, setting, kinds))
        if np.isfinite(slowest_s) and (best is None or slowest_s < best[0]):
            best = slowest_s, Chain(kinds=kinds, stops=stops)
    return None if best is None else best[1]


def _seconds(chains: Chains, setting: Setting, kinds: tuple[int, ...]) -> Floats:
    """Forward and backward of each run, activations received before it and gradients received behind it."""
    tables, transfer_s, seconds = chains.tables, chains.kinds.transfer_s, []
    for index, kind in enumerate(kinds):
        depth = min(setting.in_flight, 2 * (len(kinds) - index) - 1)
        own_s = tables.fitting_work_s(kind, setting.in_flight, depth)
        if index > 0:
            own_s = own_s + transfer_s[kinds[index - 1], kind][:, None]
        if index + 1 < len(kinds):
            own_s = own_s + transfer_s[kind, kinds[index + 1]][None, :]
        seconds.append(own_s)
    return np.array(seconds)
