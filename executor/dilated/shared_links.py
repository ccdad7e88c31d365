"""The links of a dilated run, which all its ranks queue for in one file that they map into memory."""

import fcntl
import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stagecut.planner.core.arrays import Floats

_ROW = np.dtype([("ready_s", "f8"), ("end_s", "f8"), ("joined", "i8"), ("served", "i8")])
"""Of a booking: latest ready time and end of the service under way, parts that have joined it, services so far."""
_LINK = np.dtype("f8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """What takes its turn on links as a whole, once a step: a message of the simulator, or an all-reduce."""

    number: int
    num_parts: int
    """It is ready when so many have joined: the messages that it goes in, or the ranks that reduce."""
    ranks: tuple[int, ...]
    """Whose parts they are."""
    seconds: float
    links: tuple[int, ...]
    """Numbers of the links that it occupies from its start to its end."""


class SharedLinks:
    """Links that serve one booking after another, in the order in which they become ready.

    A booking is served when it is ready and all of its links are free, as in :mod:`planner.simulator.contention`:

        start = max(ready time, end of what was served last on each of its links),  end = start + seconds.

    Every rank has an object of its own for the same file; ranks may be processes or threads of one
    machine, whose `time.monotonic` they have in common.

    Parameters
    ----------
    path
        The file, made by whoever comes first. Counts go on from what it holds: a new run needs a new one.
    """

    def __init__(self, path: Path, *, num_links: int, num_bookings: int) -> None:
        links_bytes = num_links * _LINK.itemsize
        size = links_bytes + num_bookings * _ROW.itemsize
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # kept open: the lock is the file's
        weakref.finalize(self, os.close, self._file)
        os.ftruncate(self._file, size)
        memory = mmap.mmap(self._file, size)
        self._free_s: Floats = np.frombuffer(memory, dtype=_LINK, count=num_links)
        self._rows = np.frombuffer(memory, dtype=_ROW, count=num_bookings, offset=links_bytes)

    def join(self, booking: Booking, ready_s: float, *, time_scale: float = 1.0) -> None:
        """Say that a part is ready; with the last one the booking is served, for so many times its seconds."""
        with self._locked():
            row = self._rows[booking.number]
            row["joined"] += 1
            row["ready_s"] = max(row["ready_s"], ready_s)
            if row["joined"] == booking.num_parts:
                self._serve(booking, time_scale * booking.seconds)

    def end_of(self, booking: Booking, service: int) -> float | None:
        """When a booking ends, served for the n-th time; None while parts are missing.

        Nobody joins the next service before everybody has asked for the end of this one.
        """
        with self._locked():
            row = self._rows[booking.number]
            return float(row["end_s"]) if row["served"] >= service else None

    def _serve(self, booking: Booking, seconds: float) -> None:
        row = self._rows[booking.number]
        links = list(booking.links)
        end_s = max([float(row["ready_s"]), *self._free_s[links].tolist()]) + seconds
        self._free_s[links] = end_s
        self._rows[booking.number] = (0.0, end_s, 0, row["served"] + 1)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
