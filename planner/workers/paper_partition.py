"""HetPipe's partition of a model over a virtual worker: min-max of compute plus receive time.

Park et al., "HetPipe", USENIX ATC 2020, state it as a program for CPLEX; `solvers/papers/hetpipe.py` has it for HiGHS,
and a dynamic program over the layers gives the same optimum.
"""

import itertools

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.workers.chain_program import Chain
from stagecut.planner.workers.chains import Chains
from stagecut.planner.workers.kinds import Counts
from stagecut.planner.workers.rows import Setting

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


def min_max_stops(seconds: Floats) -> tuple[float, tuple[int, ...]]:
    """The cut whose slowest stage is fastest, given the seconds of every run of layers, shape (k, L + 1, L + 1).

    T_q(j) = min over i of max(T_{q-1}(i), a[q,i,j]).
    """
    num_nodes = seconds.shape[1]
    slowest_s = np.where(np.arange(num_nodes) == 0, 0.0, np.inf)
    starts = []
    for own in seconds:
        values = np.maximum(slowest_s[:, None], own)
        starts.append(values.argmin(axis=0))
        slowest_s = values.min(axis=0)
    stops = [num_nodes - 1]
    for start in reversed(starts[1:]):
        stops.insert(0, int(start[stops[0]]))
    return float(slowest_s[-1]), tuple(stops)


def _seconds(chains: Chains, setting: Setting, kinds: tuple[int, ...]) -> Floats:
    """Forward and backward of each run, activations received before it and gradients received behind it."""
    tables, transfer_s, seconds = chains.tables, chains.kinds.transfer_s, []
    for index, kind in enumerate(kinds):
        own_s = tables.stages(kind, setting.in_flight, len(kinds) - index).compute_s
        if index > 0:
            own_s = own_s + transfer_s[kinds[index - 1], kind][:, None]
        if index + 1 < len(kinds):
            own_s = own_s + transfer_s[kind, kinds[index + 1]][None, :]
        seconds.append(own_s)
    return np.array(seconds)
