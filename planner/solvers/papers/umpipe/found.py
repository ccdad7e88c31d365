"""What a search for sizes returns."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stagecut.planner.sublots.labels import Sizes
from stagecut.planner.sublots.process_chain import ProcessChain

Lines = tuple[ProcessChain, ...]
"""Forwards and backwards under a flush, one after the other in time; or any number of lines, such as one."""


class Found(NamedTuple):
    """Sizes, and the work that went into finding them."""

    sizes: Sizes
    num_evaluations: int
    """How often the sublots of one process were timed; a choice for all processes counts as often as there are any."""


def joined(parts: Iterable[Found]) -> Found:
    """Lines searched one by one, as one answer."""
    by_line = list(parts)
    return Found(
        sizes=tuple(sizes for part in by_line for sizes in part.sizes),
        num_evaluations=sum(part.num_evaluations for part in by_line),
    )


def sizes_of(lines: Lines, genes: Sequence[int]) -> Sizes:
    """The sizes that indices stand for, those of all lines one after another."""
    indices = iter(genes)
    return tuple(tuple(process.sizes[next(indices)] for process in line.processes) for line in lines)
