"""One size for all processes, as in GPipe (Huang et al., NeurIPS 2019): the baseline, and where breeding starts."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.solvers.papers.umpipe.found import Found, Lines, sizes_of
from stagecut.planner.sublots.staircases import makespan_s


def equal_sizes(lines: Lines) -> Found:
    """The best common size; of equally good ones the smallest."""
    choices = [sizes_of(lines, genes) for genes in equal_genes(lines).tolist()]
    return Found(
        sizes=min(choices, key=lambda sizes: sum(map(makespan_s, lines, sizes))),
        num_evaluations=sum(len(line) for sizes in choices for line in sizes),
    )


def equal_genes(lines: Lines) -> Ints:
    """Every common size, ascending, as the index of the size of each process, shape (choices, processes of all lines).

    A process that lacks a size takes the one that is the least factor away.
    """
    own = [np.log(process.sizes) for line in lines for process in line.processes]
    common = np.unique(np.concatenate(own))
    genes = np.array([np.abs(np.subtract.outer(common, logs)).argmin(axis=1) for logs in own]).T
    distinct: Ints = genes[np.insert((genes[1:] != genes[:-1]).any(axis=1), 0, True)]
    return distinct
