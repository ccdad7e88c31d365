"""Completion times of samples as staircases, and the time that remains behind them.

With sublots [c_j, c_j+1) of process i, T_j their seconds and C_i-1 the staircase before it, sublot j ends at

    E_j = max(E_j-1, C_i-1[c_j+1], release) + T_j,      C_i[n] = E_j for c_j < n <= c_j+1,

and every sample of the sublot has left when it ends. Seen from the end, the longest way from the arrival of
a sample at process i to the end of the last process is

    L_j = T_j + max(L_j+1, q_i+1[c_j + 1]),             q_i[n] = L_j for c_j < n <= c_j+1.

A staircase is not falling in n, the way that remains is not rising. For the sizes of a whole chain, the
makespan is the largest of C_i[n] + q_i+1[n] over all n, at any i (and of release + q_i[1]).

Both recursions are maxima of running sums: E_j = S_j + max over k <= j of (A_k - S_k-1), with S the running sum
of T and A the arrivals, so whole populations are evaluated at once.
"""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.sublots.process_chain import ProcessChain


def completions(chain: ProcessChain, index: int, size: int, arrived_s: Floats) -> Floats:
    """Staircases behind a process, from those before it, both of shape (labels, N)."""
    process, cuts = chain.processes[index], chain.cuts(size)
    return staircases_behind(process.seconds[np.diff(cuts)], cuts, arrived_s, process.release_s)


def remaining(chain: ProcessChain, index: int, size: int, after_s: Floats) -> Floats:
    """Longest ways from the arrival of each sample at a process to the end, from those at the next process.

    Both have the shape (N,); behind the last process nothing remains.
    """
    cuts = chain.cuts(size)
    return ways_before(chain.processes[index].seconds[np.diff(cuts)], cuts, after_s)


def staircases_behind(seconds: Floats, cuts: Ints, arrived_s: Floats, release_s: float | Floats = 0.0) -> Floats:
    """Staircases of shape (..., N) behind a process with J sublots, from those before it.

    Parameters
    ----------
    seconds
        Of each sublot, shape (J,) or (..., J).
    release_s
        Earliest start; a number, or of shape (..., 1).
    """
    ends = np.cumsum(seconds, axis=-1)
    lead = np.maximum(arrived_s[..., cuts[1:] - 1], release_s) - (ends - seconds)
    ended_s: Floats = ends + np.maximum.accumulate(lead, axis=-1)
    return np.repeat(ended_s, np.diff(cuts), axis=-1)


def ways_before(seconds: Floats, cuts: Ints, after_s: Floats) -> Floats:
    """Longest ways to the end from the arrivals at a process, of shape (..., N), from those at the next process.

    Parameters
    ----------
    seconds
        Of each of J sublots, shape (J,) or (..., J).
    """
    to_end = np.cumsum(seconds[..., ::-1], axis=-1)[..., ::-1]
    lead = np.maximum(after_s[..., cuts[:-1]] - (to_end - seconds), 0.0)
    left_s: Floats = to_end + np.maximum.accumulate(lead[..., ::-1], axis=-1)[..., ::-1]
    return np.repeat(left_s, np.diff(cuts), axis=-1)


def arrivals(chain: ProcessChain, *, num_labels: int = 1) -> Floats:
    """Staircase before the first process: all samples are there from the start, shape (labels, N)."""
    return np.zeros((num_labels, chain.num_samples))


def makespan_s(chain: ProcessChain, sizes: Sequence[int]) -> float:
    """When the last sublot leaves the last process, for one size per process."""
    staircase = arrivals(chain)
    for index, size in enumerate(sizes):
        staircase = completions(chain, index, size, staircase)
    return float(staircase[0, -1])


def least_remaining(chain: ProcessChain) -> list[Floats]:
    """For every process, and behind the last one, the least way to the end over all sizes, sample by sample.

    Different samples may have it with different sizes, so this is a lower bound of what any choice leaves.
    """
    least = [np.zeros(chain.num_samples)]
    for index in reversed(range(len(chain.processes))):
        ways = [remaining(chain, index, size, least[-1]) for size in chain.processes[index].sizes]
        least.append(np.min(ways, axis=0))
    return least[::-1]
