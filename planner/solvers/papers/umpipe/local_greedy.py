"""Local greedy: process by process, the size with which that process is done first.

What follows does not count, so the first process takes the whole batch if its setup is of any weight, and nothing can
overlap with it any more.
"""

from stagecut.planner.solvers.papers.umpipe.found import Found
from stagecut.planner.sublots.process_chain import ProcessChain
from stagecut.planner.sublots.staircases import arrivals, completions


def local_greedy(line: ProcessChain) -> Found:
    """Sizes of one line; of equally good ones the smallest."""
    staircase, sizes, num_evaluations = arrivals(line), [], 0
    for index, process in enumerate(line.processes):
        after = {size: completions(line, index, size, staircase) for size in process.sizes}
        size = min(after, key=lambda each: (after[each][0, -1], each))
        staircase = after[size]
        sizes.append(size)
        num_evaluations += len(after)
    return Found(sizes=(tuple(sizes),), num_evaluations=num_evaluations)
