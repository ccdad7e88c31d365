"""The links of a dilated run, for which all ranks queue in one memory-mapped file."""

import fcntl
import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats

_ROW = np.dtype([("ready_s", "f8"), ("end_s", "f8"), ("joined", "i8"), ("served", "i8")])
"""Per transfer: latest ready time and end of the current service, parts that have joined it, services so far."""
_LINK = np.dtype("f8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Occupies links as a whole, once a step: a message of the simulator, or an all-reduce."""

    number: int
    num_parts: int
    """It is ready once this many have joined: the messages it consists of, or the ranks of the all-reduce."""
    ranks: tuple[int, ...]
    """The ranks that contribute the parts."""
    seconds: float
    links: tuple[int, ...]
    """Numbers of the links it occupies from start to end."""


class SharedLinks:
    """Links that serve one transfer after another, in the order in which they become ready.

    A transfer is served when it is ready and all of its links are free, as in
    :mod:`stagecut.planner.simulator.event_loop`:

        start = max(ready time, end of what was served last on each of its links),  end = start + seconds.

    Every rank has its own object for the same file. Ranks may be processes or threads of one machine, which share
    `time.monotonic`.

    Parameters
    ----------
    path
        The file, created by the first rank. Counts continue from what it holds, so each run needs a new one.
    """

    def __init__(self, path: Path, *, num_links: int, num_transfers: int) -> None:
        links_bytes = num_links * _LINK.itemsize
        size = links_bytes + num_transfers * _ROW.itemsize
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # kept open, because it holds the lock
        weakref.finalize(self, os.close, self._file)
        os.ftruncate(self._file, size)
        memory = mmap.mmap(self._file, size)
        self._free_s: Floats = np.frombuffer(memory, dtype=_LINK, count=num_links)
        self._rows = np.frombuffer(memory, dtype=_ROW, count=num_transfers, offset=links_bytes)

    def join(self, transfer: Transfer, ready_s: float, *, time_scale: float = 1.0) -> None:
        """Report that a part is ready. The last one starts the service, which takes `time_scale` times its seconds."""
        with self._locked():
            row = self._rows[transfer.number]
            row["joined"] += 1
            row["ready_s"] = max(row["ready_s"], ready_s)
            if row["joined"] == transfer.num_parts:
                self._serve(transfer, time_scale * transfer.seconds)

    def end_of(self, transfer: Transfer, service: int) -> float | None:
        """When a transfer ends that is served for the n-th time; None while parts are missing.

        No rank joins the next service before all have asked for the end of this one.
        """
        with self._locked():
            row = self._rows[transfer.number]
            return float(row["end_s"]) if row["served"] >= service else None

    def _serve(self, transfer: Transfer, seconds: float) -> None:
        row = self._rows[transfer.number]
        links = list(transfer.links)
        end_s = max([float(row["ready_s"]), *self._free_s[links].tolist()]) + seconds
        self._free_s[links] = end_s
        self._rows[transfer.number] = (0.0, end_s, 0, row["served"] + 1)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
