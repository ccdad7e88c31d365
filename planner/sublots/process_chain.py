"""Processes in a line, through which the samples of a batch pass in sublots.

A *process* is the computation of a stage, or a transfer between two stages, in one direction. It takes the
samples in their order, cut into *sublots* of one size, of which one may be smaller; a sublot starts when the
process is free and all its samples have left the process before, and its samples leave together (batch
availability).

Seen backwards in time a line of processes is another one: the last process comes first, the last sample
too, and the smaller sublot leads instead of trailing (`partial_first`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.sublot_sizes import sublot_cuts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Process:
    """A stage's computation, or a transfer, in one direction."""

    name: str
    seconds: Floats
    """Of a sublot of x samples at index x, shape (N + 1,); not a number where it is unknown."""
    sizes: tuple[int, ...]
    """Sublot sizes to choose from, ascending."""
    release_s: float = 0.0
    """No sublot starts earlier."""

    def __post_init__(self) -> None:
        num_samples = len(self.seconds) - 1
        rule = f"ascending, from 1 to {num_samples} samples"
        in_order = tuple(sorted(set(self.sizes))) == self.sizes and len(self.sizes) > 0
        require(in_order and 1 <= self.sizes[0] <= self.sizes[-1] <= num_samples, self.name, "sizes", rule, self.sizes)
        needed = np.unique([part for size in self.sizes for part in (size, num_samples % size or size)])
        known = np.isfinite(self.seconds[needed]) & (self.seconds[needed] >= 0)
        require(bool(known.all()), self.name, "seconds", "known for every sublot", needed[~known].tolist())


@dataclass(frozen=True, kw_only=True, eq=False)
class ProcessChain:
    """Processes in the order in which samples pass them."""

    processes: tuple[Process, ...]
    partial_first: bool = False
    """Where the size does not divide the samples, the first sublot is the smaller one, not the last."""

    def __post_init__(self) -> None:
        require(len(self.processes) > 0, "process chain", "processes", "not empty", ())
        lengths = sorted({len(process.seconds) - 1 for process in self.processes})
        require(len(lengths) == 1, "process chain", "numbers of samples", "the same for all processes", lengths)

    @cached_property
    def num_samples(self) -> int:
        """Samples N of the batch."""
        return len(self.processes[0].seconds) - 1

    def cuts(self, size: int) -> Ints:
        """Boundaries 0 = c_0 < ... < c_J = N of the sublots of one size."""
        return sublot_cuts(self.num_samples, size, partial_first=self.partial_first)

    def reversed(self) -> "ProcessChain":
        """The same line backwards in time; without release times its makespan is the same for the same sizes."""
        require(not any(process.release_s for process in self.processes), "process chain", "release_s", "zero", self)
        return replace(self, processes=self.processes[::-1], partial_first=not self.partial_first)


def affine(name: str, setup_s: float, per_sample_s: float, num_samples: int, sizes: Iterable[int]) -> Process:
    """A process with T(x) = a + c x: an attached setup and a time per sample, in seconds."""
    seconds: Floats = setup_s + per_sample_s * np.arange(num_samples + 1, dtype=np.float64)
    return Process(name=name, seconds=seconds, sizes=tuple(sizes))
