"""Global greedy: a dynamic program over processes and sizes that remembers one way to each.

    D_i(x) = min over y of D_{i-1}(y) extended by process i with size x,

where the minimum is the time at which the last sample leaves process i. That would be exact if what remains depended on
this time alone. It depends on the whole staircase of completion times: a way that ends a little later, but lets the
first samples go much earlier, is lost. In the problem of seven processes in docs/papers/umpipe.md, the first process
does 16 samples in 24 s with size 8 and in 32 s with size 4. So the way that starts with 8 is ahead and the only one
kept, although its first samples leave after 12 s instead of 8 s. The program ends at 73.8 s; equal sizes of 4 take
69.8 s.
"""

import numpy as np

from stagecut.planner.solvers.papers.umpipe.found import Found
from stagecut.planner.sublots.process_chain import ProcessChain
from stagecut.planner.sublots.staircases import arrivals, completions


def global_greedy(line: ProcessChain) -> Found:
    """Sizes of one line; of equally good ways the one found first, from the smallest size on."""
    staircases, ways, num_evaluations = arrivals(line), list[tuple[int, ...]]([()]), 0
    for index, process in enumerate(line.processes):
        tables = [completions(line, index, size, staircases) for size in process.sizes]
        kept = [int(table[:, -1].argmin()) for table in tables]
        num_evaluations += len(ways) * len(tables)
        ways = [(*ways[way], size) for way, size in zip(kept, process.sizes, strict=True)]
        staircases = np.array([table[way] for way, table in zip(kept, tables, strict=True)])
    return Found(sizes=(ways[int(staircases[:, -1].argmin())],), num_evaluations=num_evaluations)
