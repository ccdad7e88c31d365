"""The wait-for graph of the ranks of one machine: one row per rank in a memory-mapped file."""

import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stagecut.executor.ranks.failures import WaitError

_PID = struct.Struct("=q")


class WaitGraph:
    """Writes the row of one rank and reads the rows of the others.

    A row holds the process id of the rank (0 before it starts, and for ranks on other machines) and one byte for each
    rank that it may wait for. Writing one takes less than a microsecond.

    Parameters
    ----------
    rank
        The rank whose row this process writes.
    path
        The file, created if missing; None: rows private to this process.
    """

    def __init__(self, rank: int, world_size: int, *, path: Path | None = None) -> None:
        self._rank, self._world_size = rank, world_size
        self._width = _PID.size + world_size
        self._rows = _mapped(path, self._width * world_size)
        _PID.pack_into(self._rows, rank * self._width, os.getpid())

    @contextmanager
    def waiting_for(self, ranks: Sequence[int]) -> Iterator[None]:
        """Record whom this rank waits for inside the context, and turn torch's errors into who is to blame.

        Raises
        ------
        WaitError
            If the wait timed out or a connection broke.
        """
        self.waits_for(rank for rank in ranks if rank != self._rank)
        try:
            yield
        except RuntimeError as fault:  # the row stays: others find their culprits through it
            raise WaitError(self.culprits(ranks) or tuple(ranks)) from fault
        self.waits_for(())

    def waits_for(self, ranks: Iterable[int]) -> None:
        """Record which ranks this one waits for from now on; none: it runs."""
        row = bytearray(self._world_size)
        for rank in ranks:
            row[rank] = 1
        self._rows[self._awaited(self._rank)] = bytes(row)

    def pid_of(self, rank: int) -> int:
        """Process id of a rank; 0 if it has not started on this machine."""
        pid: int = _PID.unpack_from(self._rows, rank * self._width)[0]
        return pid

    def awaited_by(self, rank: int) -> tuple[int, ...]:
        """Ranks that a rank waits for."""
        return tuple(index for index, waits in enumerate(self._rows[self._awaited(rank)]) if waits)

    def culprits(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Ranks that wait for nobody, at the ends of the chains of waits that start at these.

        A process that has been stopped, with a signal or by a debugger, may still be on record as waiting: where there
        is one on these chains, it is to blame. Empty if all wait for each other.
        """
        found, seen, to_visit = set[int](), set[int](), list(ranks)
        while to_visit:
            rank = to_visit.pop()
            if rank in seen:
                continue
            seen.add(rank)
            awaited = self.awaited_by(rank)
            to_visit.extend(awaited)
            if not awaited:
                found.add(rank)
        stopped = {rank for rank in seen if _is_stopped(self.pid_of(rank))}
        return tuple(sorted(stopped or found))

    def _awaited(self, rank: int) -> slice:
        """The bytes of a rank's row that say whom it waits for."""
        start = rank * self._width + _PID.size
        return slice(start, start + self._world_size)


def _mapped(path: Path | None, size: int) -> mmap.mmap:
    """A file of zeros, unless other ranks have already written to it."""
    if path is None:
        return mmap.mmap(-1, size)
    with path.open("a+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)


def _is_stopped(pid: int) -> bool:
    """Whether a process of this machine has been stopped, as far as the system tells: Linux's /proc/PID/stat."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in {"T", "t"}
