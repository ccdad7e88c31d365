"""Who waits for whom: one row a rank in a file that the ranks of one machine map into memory."""

import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stagecut.executor.run.faults import WaitError

_PID = struct.Struct("=q")


class Whereabouts:
    """The row of one rank, to write, and those of the others, to read.

    A row holds the process id of the rank, 0 before it starts and for ranks of other machines, and a
    byte for each rank that it waits for. To write one costs less than a microsecond.

    Parameters
    ----------
    rank
        Whose row this process writes.
    world_size
        Ranks altogether.
    path
        The file, created here where there is none; None keeps the rows to this process.
    """

    def __init__(self, rank: int, world_size: int, *, path: Path | None = None) -> None:
        self._rank, self._world_size = rank, world_size
        self._width = _PID.size + world_size
        self._rows = _mapped(path, self._width * world_size)
        start = rank * self._width
        self._row = slice(start + _PID.size, start + self._width)
        self._nobody = bytes(world_size)
        _PID.pack_into(self._rows, start, os.getpid())

    @contextmanager
    def waiting_for(self, ranks: Sequence[int]) -> Iterator[None]:
        """Say who is waited for inside the context, and turn what torch raises there into who is to blame.

        Raises
        ------
        WaitError
            If the wait took longer than the world allows, or a connection broke.
        """
        self.waits_for(rank for rank in ranks if rank != self._rank)
        try:
            yield
        except RuntimeError as fault:  # the row stays: others find their culprits through it
            raise WaitError(self.culprits(ranks) or tuple(ranks)) from fault
        self.goes_on()

    def waits_for(self, ranks: Iterable[int]) -> None:
        """Say which ranks this one waits for from now on."""
        row = bytearray(self._world_size)
        for rank in ranks:
            row[rank] = 1
        self._rows[self._row] = bytes(row)

    def goes_on(self) -> None:
        """Say that it waits no longer."""
        self._rows[self._row] = self._nobody

    def pid_of(self, rank: int) -> int:
        """Process id of a rank; 0 where it has not started on this machine."""
        pid: int = _PID.unpack_from(self._rows, rank * self._width)[0]
        return pid

    def awaited_by(self, rank: int) -> tuple[int, ...]:
        """Ranks that a rank waits for."""
        start = rank * self._width + _PID.size
        return tuple(index for index, waits in enumerate(self._rows[start : start + self._world_size]) if waits)

    def culprits(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Ranks at the end of the chain that starts with these: awaited, and waiting for nobody themselves.

        Empty where they all wait for each other.
        """
        found, seen, open_ranks = set[int](), set[int](), list(ranks)
        while open_ranks:
            rank = open_ranks.pop()
            if rank in seen:
                continue
            seen.add(rank)
            awaited = self.awaited_by(rank)
            if awaited:
                open_ranks.extend(awaited)
            else:
                found.add(rank)
        return tuple(sorted(found))


def _mapped(path: Path | None, size: int) -> mmap.mmap:
    """A file of zeros unless others wrote to it already."""
    if path is None:
        return mmap.mmap(-1, size)
    with path.open("a+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)
