"""Times in whole ticks, whose sums are exact in any order of addition.

The plain recurrence and its matrix form add the same numbers in different orders. Sums of rounded seconds would then
differ in their last bits, and with them, now and then, which of two chromosomes is the fitter. Whole numbers below 2^53
have exact sums and differences, as doubles and as integers alike, so both forms give the same bits.
"""

from dataclasses import replace

import numpy as np

from stagecut.planner.sublots.process_chain import Process, ProcessChain

HORIZON = 2**50
"""Ticks within which every choice of sizes ends, all lines together: one tick is 1e-15 of the worst time."""


def in_ticks(lines: tuple[ProcessChain, ...]) -> tuple[ProcessChain, ...]:
    """The same lines, times rounded to whole ticks: where a name says seconds, ticks are meant."""
    tick_s = sum(_worst_s(line) for line in lines) / HORIZON or 1.0

    def ticking(process: Process) -> Process:
        release = float(np.rint(process.release_s / tick_s))
        return replace(process, seconds=np.rint(process.seconds / tick_s), release_s=release)

    return tuple(replace(line, processes=tuple(map(ticking, line.processes))) for line in lines)


def _worst_s(line: ProcessChain) -> float:
    """Time by which every choice has ended: all releases, and every process alone at its slowest size."""

    def slowest_s(process: Process) -> float:
        sizes = np.array(process.sizes)
        rest = line.num_samples % sizes
        rest_s = np.where(rest > 0, process.seconds[rest], 0.0)
        return float((line.num_samples // sizes * process.seconds[sizes] + rest_s).max())

    return sum(process.release_s + slowest_s(process) for process in line.processes)
