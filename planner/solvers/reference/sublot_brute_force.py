"""Every choice of sublot sizes, played sublot by sublot: the oracle for the label program and the MIP.

A deliberate second statement of the recursion, in the words of docs/sublots.md: it looks at every sample of every
sublot, and shares no code with the staircases.
"""

import math
from collections.abc import Container, Iterator, Sequence

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.sublots.labels import SublotChoice
from stagecut.planner.sublots.process_chain import Process, ProcessChain

MAX_CHOICES = 200_000
"""Choices of sizes for a line, or pairs of choices for two lines."""


def best_apart(chain: ProcessChain) -> SublotChoice:
    """The sizes of least makespan, of equal ones the smallest.

    Raises
    ------
    UnsupportedError
        If there are too many choices to try.
    """
    _refuse_if_many(chain)
    best_s, sizes = min((seconds, sizes) for sizes, seconds in all_makespans(chain))
    return SublotChoice(sizes=(sizes,), makespan_s=best_s, bound_s=best_s)


def best_coupled(forward: ProcessChain, backward: ProcessChain, computations: Container[int]) -> SublotChoice:
    """The sizes of least sum of makespans among those in which backwards are unions of forwards.

    Parameters
    ----------
    backward
        Seen backwards in time, with its processes in the order of the forwards.
    computations
        Indices of the processes at which this is asked for.

    Raises
    ------
    UnsupportedError
        If there are too many choices to try.
    """
    _refuse_if_many(forward, backward)
    backwards = list(all_makespans(backward))
    best_s, *sizes = min(
        (forward_s + backward_s, there, back)
        for there, forward_s in all_makespans(forward)
        for back, backward_s in backwards
        if are_unions(forward, there, backward, back, computations)
    )
    return SublotChoice(sizes=tuple(sizes), makespan_s=best_s, bound_s=best_s)


def are_unions(
    forward: ProcessChain,
    there: Sequence[int],
    backward: ProcessChain,
    back: Sequence[int],
    computations: Container[int],
) -> bool:
    """Whether every sublot of a backward ends, in the order of the samples, where one of its forward does.

    The samples of a line seen backwards in time are counted from the last one.
    """
    for index, (size, wider) in enumerate(zip(there, back, strict=True)):
        if index in computations:
            ends = {samples.stop for samples in sublots(forward, size)}
            needed = {forward.num_samples - samples.start for samples in sublots(backward, wider)}
            if not needed <= ends:
                return False
    return True


def all_makespans(chain: ProcessChain) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every choice of sizes, with its makespan in seconds."""

    def continued(sizes: tuple[int, ...], left_s: list[float]) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(sizes) == len(chain.processes):
            yield sizes, left_s[-1]
            return
        process = chain.processes[len(sizes)]
        for size in process.sizes:
            yield from continued((*sizes, size), passed(process, sublots(chain, size), left_s))

    return continued((), [0.0] * chain.num_samples)


def played_s(chain: ProcessChain, sizes: Sequence[int]) -> float:
    """The makespan of one choice of sizes."""
    left_s = [0.0] * chain.num_samples
    for process, size in zip(chain.processes, sizes, strict=True):
        left_s = passed(process, sublots(chain, size), left_s)
    return left_s[-1]


def passed(process: Process, parts: Sequence[range], arrived_s: Sequence[float]) -> list[float]:
    """When each sample leaves a process, given when it arrived and the samples of each sublot."""
    free_s, left_s = process.release_s, list[float]()
    for samples in parts:
        begin_s = max(free_s, *(arrived_s[sample] for sample in samples))
        free_s = begin_s + float(process.seconds[len(samples)])
        left_s.extend(free_s for _ in samples)
    return left_s


def sublots(chain: ProcessChain, size: int) -> list[range]:
    """Samples of each sublot of this size, counted from 0; one that is smaller comes last, or first if so agreed."""
    total = chain.num_samples
    parts = [range(start, min(start + size, total)) for start in range(0, total, size)]
    return [range(total - part.stop, total - part.start) for part in reversed(parts)] if chain.partial_first else parts


def _refuse_if_many(*chains: ProcessChain) -> None:
    count = math.prod(len(process.sizes) for chain in chains for process in chain.processes)
    if count > MAX_CHOICES:
        raise UnsupportedError(f"brute force over sublot sizes: {count} choices, more than {MAX_CHOICES} can be tried")
