"""The genetic algorithm with one chromosome for forwards and backwards together."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.solvers.papers.umpipe.dual_genetic import one_by_one
from stagecut.planner.solvers.papers.umpipe.found import Found, Lines
from stagecut.planner.solvers.papers.umpipe.operators import Breeding, bred
from stagecut.planner.solvers.papers.umpipe.ticks import in_ticks


def genetic(lines: Lines, *, seed: int, breeding: Breeding) -> Found:
    """Sizes of all lines."""
    lines = in_ticks(lines)
    cuts = np.cumsum([len(line.processes) for line in lines])[:-1]
    evaluations = [one_by_one(line) for line in lines]

    def evaluate(population: Ints) -> Floats:
        parts = np.split(population, cuts, axis=1)
        total: Floats = np.sum([each(part) for each, part in zip(evaluations, parts, strict=True)], axis=0)
        return total

    return bred(lines, evaluate, np.random.default_rng(seed), breeding)
